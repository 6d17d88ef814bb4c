#!/usr/bin/env bash
# What three organisations do before they train, for a rehearsal on one machine: keys, data, ring file, acceptance.
# `compose.yaml` runs it in a container. rehearsal.sh FOLDER [ADDRESS of north, east, south]
set -euo pipefail
folder=$1
sites=(north east south)
addresses=("${2:-north:7443}" "${3:-east:7443}" "${4:-south:7443}")
if [ -e "$folder/ring.toml" ]; then
    echo "$folder/ring.toml already exists: nothing to do"
    exit 0
fi

firma split --dataset digits --scenario dir-0.5 --clients 3 --export "$folder/data" --format npz
members=()
for number in 0 1 2; do
    site=${sites[$number]}
    firma init "$site" "${addresses[$number]}" --identity "$folder/$site/firma-identity"
    mv "$folder/data/client-$number.npz" "$folder/$site/mine.npz"
    members+=(--member "$folder/$site/firma-identity/site.toml")
done
firma ring-file "$folder/ring.toml" "${members[@]}" --federation rehearsal --method fibfl++ --rounds 10 \
    --shape 8x8 --labels 0,1,2,3,4,5,6,7,8,9
for site in "${sites[@]}"; do
    cp "$folder/ring.toml" "$folder/$site/ring.toml"
    firma accept "$folder/$site/ring.toml" --identity "$folder/$site/firma-identity" --yes
done
