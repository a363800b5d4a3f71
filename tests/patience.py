"""How long a test waits for what must happen, before it says that it hangs.

Nothing is judged by it: what ought to be quick is told by pages, calls or processor time. A machine may be
five times slower than another, and have other work.
"""

from typing import Final

WAIT_SECONDS: Final = 180.0
