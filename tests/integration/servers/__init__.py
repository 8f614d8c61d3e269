"""Real servers on loopback, each started on free ports in its own folder and stopped by its process id."""
