"""`python -m spanmq.cli` is `spanmq`."""

from spanmq.cli import main

if __name__ == "__main__":
    main()
