#!/bin/busybox sh
# shellcheck shell=dash
# The first process of a guest: mounts the host's files, runs the set-up, and powers off. Kernel messages and the
# errors of this script go to the serial console, which the rig shows if a guest fails.

/bin/busybox mkdir -p /proc /sys /dev /sbin /host /upper /root
/bin/busybox --install -s /bin
PATH=/bin
# When the kernel wants a module (soft-RoCE: crc32), it starts this program here, not the one in the host's files.
printf '#!/bin/busybox sh\nexec /bin/busybox chroot /root /sbin/modprobe "$@"\n' >/sbin/modprobe
chmod 755 /sbin/modprobe

give_up() {
  echo "rdma_vm: $*"
  poweroff -f
}

mount -t proc proc /proc || give_up 'no /proc'
mount -t sysfs sys /sys || give_up 'no /sys'
mount -t devtmpfs dev /dev || give_up 'no /dev'
while read -r module; do
  insmod "/modules/$module" || give_up "cannot load $module"
done </modules.order

# The host's files that a guest reads do not change while it runs: cache=loose starts programs in a fraction of the
# time. A guest's writes stay in its memory.
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose hostroot /host || give_up 'no host files'
mount -t tmpfs -o size=50% upper /upper || give_up 'no memory for writes'
mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/host,upperdir=/upper/data,workdir=/upper/work overlay /root || give_up 'no overlay'
for folder in proc sys dev; do mount --move "/$folder" "/root/$folder" || give_up "no /$folder"; done
mkdir -p /root/dev/shm /root/dev/pts
ln -s /proc/self/fd /root/dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%:*}" "/root/dev/${stream#*:}"; done
mount -t tmpfs shm /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs run /root/run
mkdir /root/run/rdma_vm /root/run/lock
# Written by the host and by all guests: never cached.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=65536,cache=none shared /root/run/rdma_vm || give_up 'no shared folder'
chroot /root /bin/bash /run/rdma_vm/setup || give_up 'the set-up has failed'
poweroff -f
