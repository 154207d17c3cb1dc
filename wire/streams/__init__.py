"""Messages and sockets for the files of a run, to and from workers without the runs folder."""
