#!/usr/bin/env bash
# Compares the platforms of the images that are in a registry with those that the bundle
# names, by the SDK's validator "multiarch": hack/multiarch-check.sh <host:port>
#
# The validator runs `docker pull` and `docker manifest inspect`. There is no engine here, so
# it finds a docker that reads the image's index from the registry, which serves every image
# under its public name. An image that cannot be read, or has no index, is a warning; and
# warnings are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
registry=$1

docker=$(mktemp -d)
trap 'rm -rf "$docker"' EXIT
for host in $(sed -n 's/^ *-\? *image: \([^/]*\)\/.*/\1/p' bundle/manifests/*.clusterserviceversion.yaml | sort -u); do
	printf '[[registry]]\nprefix = "%s"\nlocation = "%s"\ninsecure = true\n' "$host" "$registry"
done >"$docker/registries.conf"
cat >"$docker/docker" <<END
#!/bin/sh
case "\$1 \$2" in
"manifest inspect") shift ;;
pull*) ;;
*) exit 1 ;;
esac
exec buildah --root $docker/root --runroot $docker/run --registries-conf $docker/registries.conf manifest inspect "\$2"
END
chmod +x "$docker/docker"

if result=$(PATH=$docker:$PATH operator-sdk bundle validate bundle --select-optional name=multiarch -o json-alpha1 2>/dev/null) &&
	! grep -Eq '"type": "(warning|error)"' <<<"$result"; then
	echo "ok    bundle: the platforms of the images are those that it names"
else
	echo "FAIL  bundle: the platforms of the images are those that it names"
	echo "$result"
	exit 1
fi
