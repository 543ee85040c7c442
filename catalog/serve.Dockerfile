# The catalog in the other form: an image that serves itself, for an OLM that cannot unpack
# one. `docker build -f catalog/serve.Dockerfile catalog`.
ARG OPM_IMAGE=quay.io/operator-framework/opm:v1.74.0
FROM $OPM_IMAGE
LABEL operators.operatorframework.io.index.configs.v1=/configs
COPY echo-operator /configs/echo-operator
# The cache is made here, so that a pod starts at once.
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
