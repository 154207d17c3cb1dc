#!/bin/bash
# Written by `remuda launch`: @{what}.
@{options}

@{setup}exec @{command}
