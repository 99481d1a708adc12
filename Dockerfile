# A static image with nothing in it but namewall, and the authorities that TLS upstreams may be signed by:
#
#   docker build -t namewall:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 -t namewall:0.1.0 .
#
# The chart in deploy/ runs it.
FROM rust:1.90-alpine AS build
# The C library to link, and a compiler for the parts of `ring` that are written in C.
RUN apk add --no-cache build-base ca-certificates
WORKDIR /source
COPY . .
# Rust's own target is musl here, which is linked statically.
RUN cargo build --release --locked --package namewall && cp target/release/namewall /namewall

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /namewall /namewall
# The controller and `namewall dns` need no rights. The agent's pods say that they are root, for NET_ADMIN.
USER 65532:65532
ENTRYPOINT ["/namewall"]
