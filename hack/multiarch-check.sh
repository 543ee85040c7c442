#!/usr/bin/env bash
# Checks the platforms of the images in a registry. Usage: hack/multiarch-check.sh <host:port>
#
# The operator-sdk validator "multiarch" compares them with those that the bundle names. It runs `docker pull` and `docker manifest inspect`. This script puts a docker wrapper
# on the PATH that reads the image index with buildah from the registry, which serves every image
# under its public name. An unreadable image or a missing index is a warning; warnings count as errors.
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
	echo "ok    bundle: platforms of the images match the labels"
else
	echo "FAIL  bundle: platforms of the images match the labels"
	echo "$result"
	exit 1
fi

# The program of each image starts on arm64, under emulation.
for image in $(sed -n '/^  relatedImages:/,$s/^ *- image: ghcr.io\///p' bundle/manifests/*.clusterserviceversion.yaml); do
	skopeo copy -q --override-arch arm64 --src-tls-verify=false "docker://$registry/$image" "dir:$docker/image"
	mkdir "$docker/content"
	for layer in $(jq -r '.layers[].digest' "$docker/image/manifest.json"); do tar -xf "$docker/image/${layer#sha256:}" -C "$docker/content"; done
	program=$(find "$docker/content" -maxdepth 1 -type f -executable)
	qemu-aarch64-static "$program" -h 2>&1 | grep -q '^ *-' || {
		echo "FAIL  ${image%@*}: ${program##*/} starts on arm64"
		exit 1
	}
	echo "ok    ${image%@*}: ${program##*/} starts on arm64"
	rm -r "$docker/image" "$docker/content"
done
