"""Does not survive being imported."""

import os

os.write(2, b"last words of the module")
os._exit(3)
