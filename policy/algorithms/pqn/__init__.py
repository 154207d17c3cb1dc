"""PQN: update rule and entry. Network and acting side are those of DQN."""
