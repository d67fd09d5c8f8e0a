from idleband.cli import main

main()
