"""How the files of a run travel to and from workers that do not see them: messages, and the sockets for them."""
