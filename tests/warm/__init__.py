"""Commands of Remuda's, started within milliseconds: forked from a process that has imported Remuda.

Importing torch and the rest takes a second or two of a core, and a herd of a few tests would spend most of its time so.
What is forked is a process of its own like any other: a child of whoever starts it, with its own process id, command
line, environment, working folder and descriptors. What differs is that modules are imported already. So tests of what
a program imports, of how it starts and of how a terminal ends it start the real command, and so does everything in the
long form of the fault suite.
"""
