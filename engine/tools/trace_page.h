// The page that shows a trace. @MARKS@ stand for JSON: the title, how many steps were left out, all
// strings, and the steps as [pass, file:line, rule, lines before, lines after] in numbers of
// strings; a step of a whole pass has -1 for the rule.
#pragma once

#include <string_view>

namespace telegrad {

inline constexpr std::string_view kTracePage = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Rewrite trace</title>
<style>
:root { color-scheme: light dark; --line: #8884; --gone: #f442; --new: #2a42; --on: #48f3; }
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: flex; flex-direction: column; font: 14px/1.4 system-ui, sans-serif; }
header { padding: 8px 12px; border-bottom: 1px solid var(--line); }
header h1 { display: inline; font-size: 16px; margin: 0 12px 0 0; }
#note { color: #c60; }
#what { min-height: 3.2em; padding-top: 6px; overflow-wrap: anywhere; }
main { flex: 1; display: flex; min-height: 0; }
nav { width: 30em; overflow: auto; border-right: 1px solid var(--line); }
ol { margin: 0; padding: 0; list-style: none; }
li { padding: 2px 12px; cursor: pointer; white-space: pre; overflow: hidden; text-overflow: ellipsis; }
li.pass { font-weight: bold; border-bottom: 1px solid var(--line); }
li[aria-selected=true] { background: var(--on); }
section { flex: 1; min-width: 0; overflow: auto; padding: 6px 12px; border-right: 1px solid var(--line); }
h2 { font-size: 13px; margin: 0 0 4px; }
pre { margin: 0; font: 12px/1.5 ui-monospace, monospace; }
pre span { display: block; min-height: 1.5em; }
#before .changed { background: var(--gone); }
#after .changed { background: var(--new); }
code, kbd { font-family: ui-monospace, monospace; }
</style>
</head>
<body>
<header>
<h1 id="title"></h1><span id="position"></span> <span id="note"></span>
<span>Keys: <kbd>j</kbd>/<kbd>k</kbd> or arrows step, <kbd>n</kbd>/<kbd>p</kbd> the next or previous pass, <kbd>Home</kbd>/<kbd>End</kbd>.</span>
<div id="what"></div>
</header>
<main>
<nav><ol id="steps" role="listbox"></ol></nav>
<section><h2>Before</h2><pre id="before"></pre></section>
<section><h2>After</h2><pre id="after"></pre></section>
</main>
<script>
"use strict";
const title = @TITLE@;
const leftOut = @LEFT_OUT@;
const strings = @STRINGS@;
const steps = @STEPS@;
const get = (id) => document.getElementById(id);
get("title").textContent = title;
if (leftOut > 0) get("note").textContent = leftOut + " more rewrites were left out (--trace-limit).";
const opOf = (lines) => strings[lines[lines.length - 1]].split(" ")[2];
const items = steps.map(([pass, place, rule, before], i) => {
  const li = document.createElement("li");
  li.setAttribute("role", "option");
  li.textContent = rule < 0 ? strings[pass] : opOf(before) + ":  " + strings[rule];
  if (rule < 0) li.className = "pass";
  li.onclick = () => show(i);
  get("steps").append(li);
  return li;
});
let now = 0;
function fill(id, mine, others) {
  const other = new Set(others);
  const pre = get(id);
  pre.replaceChildren(...mine.map((line) => {
    const span = document.createElement("span");
    span.textContent = strings[line];
    if (!other.has(line)) span.className = "changed";
    return span;
  }));
  const first = pre.querySelector(".changed");
  if (first) first.scrollIntoView({ block: "center" });
}
function show(i) {
  if (i < 0 || i >= steps.length) return;
  items[now].removeAttribute("aria-selected");
  now = i;
  items[now].setAttribute("aria-selected", "true");
  items[now].scrollIntoView({ block: "nearest" });
  const [pass, place, rule, before, after] = steps[i];
  get("position").textContent = "step " + (i + 1) + " of " + steps.length;
  const what = get("what");
  what.replaceChildren("pass ", strings[pass]);
  if (rule < 0) {
    what.append(before.join() === after.join() ? ": nothing changed" : ": the whole pass");
  } else {
    const code = document.createElement("code");
    code.textContent = strings[rule];
    what.append(", ", strings[place], document.createElement("br"), code);
  }
  fill("before", before, after);
  fill("after", after, before);
}
function jump(direction) {
  for (let i = now + direction; i >= 0 && i < steps.length; i += direction) {
    if (steps[i][2] < 0) return show(i);
  }
}
const keys = {
  j: () => show(now + 1), ArrowDown: () => show(now + 1), ArrowRight: () => show(now + 1),
  k: () => show(now - 1), ArrowUp: () => show(now - 1), ArrowLeft: () => show(now - 1),
  n: () => jump(1), p: () => jump(-1),
  Home: () => show(0), End: () => show(steps.length - 1),
};
document.onkeydown = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
};
if (steps.length > 0) show(0);
</script>
</body>
</html>
)page";

}  // namespace telegrad
