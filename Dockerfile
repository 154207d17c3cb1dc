# The image of `launch.on: kubernetes`. Put your environment's packages and code into an image of your own, FROM this one.
FROM python:3.11 AS build
COPY . /source
RUN pip install --no-cache-dir --prefix=/installed -c /source/constraints.txt "/source[atari]"

FROM python:3.11-slim
COPY --from=build /installed /usr/local
# The user of launch.kubernetes.user: pods run as nobody else, and never as root.
RUN useradd --create-home --uid 1000 remuda
USER 1000
WORKDIR /home/remuda
