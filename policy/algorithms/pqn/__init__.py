"""PQN: the update rule, the entry. The network and the acting side are those of DQN."""
