// What models say is put into the page as text, never as markup.
#include "server/http/page.h"

namespace telegrad {

std::string_view PageHtml() {
  return R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Telegrad models</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #ccc; padding: .3em .6em; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
textarea { width: 100%; height: 10em; font-family: monospace; }
pre { background: #f4f4f4; padding: .6em; overflow: auto; max-height: 20em; }
.bad { color: #a00; }
</style>
<script src="/page.js" defer></script>
</head>
<body>
<h1>Models</h1>
<p><label>Token, if this server asks for one: <input id="token" type="password" size="30"></label></p>
<p id="error" class="bad"></p>
<table>
<thead><tr><th>Model</th><th>Version</th><th>State</th><th>Inputs</th><th>Outputs</th>
<th>Inferences</th><th>per second</th><th>Milliseconds each</th></tr></thead>
<tbody id="models"></tbody>
</table>
<h2>Try one</h2>
<p><label>Model: <select id="model"></select></label></p>
<textarea id="request" spellcheck="false" aria-label="Request as JSON"></textarea>
<p><button id="send">Send</button></p>
<pre id="answer"></pre>
</body>
</html>
)html";
}

std::string_view PageScript() {
  return R"script('use strict';
const at = id => document.getElementById(id);
const before = new Map();  // inference count and time of the last look, by model and version

async function ask(path, body) {
  const options = {method: body === undefined ? 'GET' : 'POST', headers: {}};
  if (body !== undefined) options.body = body;
  if (at('token').value) options.headers.Authorization = 'Bearer ' + at('token').value;
  const response = await fetch(path, options);
  const text = await response.text();
  if (!response.ok) {
    let message = text;
    try { message = JSON.parse(text).error; } catch (e) { }
    throw new Error(response.status + ': ' + message);
  }
  return text ? JSON.parse(text) : null;
}

function cell(row, text, number) {
  const td = row.insertCell();
  td.textContent = text;
  if (number) td.className = 'number';
}

const tensors = list => list.map(t => t.name + ' ' + t.datatype + ' [' + t.shape + ']').join(', ');

function example(about) {
  const inputs = about.inputs.map(t => {
    const shape = t.shape.map(d => d < 0 ? 1 : d);
    const count = shape.reduce((a, b) => a * b, 1);
    return {name: t.name, datatype: t.datatype, shape: shape,
            data: new Array(Math.min(count, 100000)).fill(t.datatype === 'BOOL' ? false : 0)};
  });
  return JSON.stringify({inputs: inputs});
}

const known = new Map();  // metadata of models, by name

async function look() {
  try {
    const index = await ask('/v2/repository/index', '{}');
    const stats = (await ask('/v2/models/stats')).model_stats;
    const now = performance.now();
    const body = document.createElement('tbody');
    body.id = 'models';
    for (const model of index) {
      const row = body.insertRow();
      const key = model.name + '/' + (model.version || '');
      const s = stats.find(x => x.name === model.name && x.version === model.version);
      if (s && !known.has(key)) {
        known.set(key, await ask('/v2/models/' + encodeURIComponent(model.name) + '/versions/' +
                                 encodeURIComponent(model.version)));
        const option = new Option(model.name + ' ' + model.version, key);
        at('model').add(option);
        if (at('model').length === 1) choose();
      }
      const about = known.get(key);
      cell(row, model.name);
      cell(row, model.version || '');
      cell(row, model.state + (model.reason ? ': ' + model.reason : ''));
      cell(row, about ? tensors(about.inputs) : '');
      cell(row, about ? tensors(about.outputs) : '');
      if (!s) continue;
      const success = s.inference_stats.success;
      const last = before.get(key);
      cell(row, s.inference_count, true);
      cell(row, last ? ((s.inference_count - last.count) * 1000 / (now - last.now)).toFixed(1) : '',
           true);
      cell(row, success.count ? (success.ns / success.count / 1e6).toFixed(2) : '', true);
      before.set(key, {count: s.inference_count, now: now});
    }
    at('models').replaceWith(body);
    at('error').textContent = '';
  } catch (e) {
    at('error').textContent = e.message;
  }
}

function choose() {
  const about = known.get(at('model').value);
  if (about) at('request').value = example(about);
}

at('model').addEventListener('change', choose);
at('send').addEventListener('click', async () => {
  const [name, version] = at('model').value.split('/');
  at('answer').textContent = '...';
  try {
    const answer = await ask('/v2/models/' + encodeURIComponent(name) + '/versions/' +
                             encodeURIComponent(version) + '/infer', at('request').value);
    at('answer').textContent = JSON.stringify(answer, null, 1);
  } catch (e) {
    at('answer').textContent = e.message;
  }
});
look();
setInterval(look, 2000);
)script";
}

}  // namespace telegrad
