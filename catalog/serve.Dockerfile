# The catalog with opm, which serves it: for OLM versions that cannot unpack a catalog image.
# Build it with `docker build -f catalog/serve.Dockerfile catalog`.
ARG OPM_IMAGE=quay.io/operator-framework/opm:v1.74.0
FROM $OPM_IMAGE
LABEL operators.operatorframework.io.index.configs.v1=/configs
COPY echo-operator /configs/echo-operator
# Building the cache into the image shortens the start of the pod.
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
