# Turns the namespaces it runs in into a machine: own processes, network, /tmp, home folder and SSH server.
# Arguments: the machine's folder, a folder that all machines share, the checkout, the Python environment, the sshd to run
# or nothing.
set -eu
folder=$1 shared=$2 checkout=$3 environment=$4 sshd=$5

mkdir "$folder/checkout"
mount --bind "$checkout" "$folder/checkout"
mount --rbind "$folder" /mnt
mount --bind "$shared" /srv
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
chmod 1777 /tmp
case $checkout in /tmp/*)  # which has just been hidden
    mkdir -p "$checkout"
    mount --bind /mnt/checkout "$checkout"
esac
ip link set lo up

# sshd takes home folder and shell from here.
export HOME=/mnt/home
mkdir -p $HOME/.ssh $HOME/.local/bin /run/sshd
sed 's#^root:.*#root:*:0:0:root:/mnt/home:/bin/bash#' /etc/passwd > /mnt/passwd
mount --bind /mnt/passwd /etc/passwd
touch $HOME/.bashrc

# There is no network to install from: the environment of the tests stands in for the one the setup commands make.
ln -s "$environment" $HOME/env
printf '#!/bin/sh\necho "$@" >> ~/uv.log\n' > $HOME/.local/bin/uv
chmod +x $HOME/.local/bin/uv

cp /srv/key $HOME/.ssh/id_ed25519
cp /srv/key.pub $HOME/.ssh/authorized_keys
if [ -n "$sshd" ]; then
    ssh-keygen -q -t ed25519 -N '' -f /mnt/host_key
    $sshd -e -f /dev/null -o HostKey=/mnt/host_key -o UsePAM=no -o StrictModes=no -E /mnt/sshd.log
fi
touch /mnt/ready
# As the first process this shell buries the orphans; a program that buries none would leave `ray stop` waiting for them.
while true; do
    sleep 3600 &
    wait $!
done
