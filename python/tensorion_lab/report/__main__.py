"""`python -m tensorion_lab.report` is the same as `tensorion report`."""

import sys

from tensorion_lab.report.command import main

sys.exit(main(sys.argv[1:]))
