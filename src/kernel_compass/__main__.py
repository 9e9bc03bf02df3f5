"""`python -m kernel_compass`: the command line."""

from kernel_compass.cli.main import run

if __name__ == "__main__":
    run()
