#!/bin/bash
# Written by `remuda launch`: @{what}.
@{options}

@{opening}@{setup}exec @{command}
