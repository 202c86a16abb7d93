"""`python -m sidr_rag.cli`."""

import sys

from sidr_rag.cli import main

sys.exit(main())
