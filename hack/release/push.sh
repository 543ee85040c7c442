#!/usr/bin/env bash
# Pushes the images of a release, the bundle last, and the Helm chart, and prints name and digest of each. A published tag is
# never moved; to repeat a failed run has no other effect. Usage: hack/release/push.sh
source "$(dirname "$0")/common.sh"
for name in "${images[@]}"; do
	line=$(publish "$(local_image "$name")" "$(local_image "$name")")
	digest=${line##* } image=${line%:v*}
	[ "$name" = bundle ] || grep -qr "$image@$digest" config || fail "$image has digest $digest, which no manifest names"
	echo "$image $digest"
done
publish_chart
