"""tinygrad on Telegrad: `DEV=TELEGRAD python3 script.py`, script and tinygrad as they are.

Installing the package is enough: telegrad.pth has Python import `_telegrad_tinygrad`, which waits for
tinygrad to be imported and then makes the device known. Where the package is only on PYTHONPATH,
`import telegrad.tinygrad` before tinygrad does the same. docs/tinygrad.md is the guide.

_convert.py says how a graph of tinygrad's becomes one of Telegrad's, _device.py what memory is,
_execute.py when graphs run.
"""

import _telegrad_tinygrad

_telegrad_tinygrad.register()
