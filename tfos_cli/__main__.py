"""`python -m tfos_cli` is `tfos`."""

from tfos_cli.main import main

if __name__ == "__main__":
    main()
