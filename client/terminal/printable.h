// Text from files and servers, as it is shown on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace telegrad {

// `text` with \xNN in place of its control characters, with which it could change what a terminal
// shows, and of what is not UTF-8. Line feeds stay in PrintableLines, for messages of several
// lines.
std::string Printable(std::string_view text);
std::string PrintableLines(std::string_view text);

}  // namespace telegrad
