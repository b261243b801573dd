#!/bin/sh
# Does the program give the bits on aarch64 that it gives here? The kernels are compiled for aarch64, and an aarch64
# Python (Debian's, with wheels from the index) runs them under qemu: random calls of all kernels, merges of recipes, and
# the tests of kernels. `make aarch64`.
# Once before, on Debian 12, as root:
#   dpkg --add-architecture arm64 && apt update && apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
set -eu
python=$1 calls=$2 seed=$3 recipes=$4
root=$PWD/build/aarch64
there=$root/python packages=$root/usr/lib/python3/dist-packages tree=$root/tree

for command in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    if ! command -v $command > /dev/null; then
        echo "$command is missing: release/aarch64.sh says at its top what to install" >&2
        exit 1
    fi
done

# The oracles of tests need a torch, of any version: 2.10 is the last whose wheel for aarch64 does without CUDA.
if ! [ -e $root/.ready ]; then
    mkdir -p $root/debs
    (cd $root/debs && apt-get download -qq python3.11-minimal:arm64 libpython3.11-minimal:arm64 \
        libpython3.11-stdlib:arm64 libc6:arm64 zlib1g:arm64 libexpat1:arm64 libssl3:arm64 libffi8:arm64 \
        libbz2-1.0:arm64 liblzma5:arm64 libgcc-s1:arm64 libstdc++6:arm64 libsqlite3-0:arm64 libuuid1:arm64)
    for deb in $root/debs/*.deb; do dpkg-deb --extract "$deb" $root; done
    fetch="$python -m pip install --quiet --upgrade --no-warn-conflicts --target $packages --only-binary :all: --python-version 3.11
        --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64"
    $fetch --constraint constraints.txt --requirement without-torch.txt pytest pytest-timeout pytest-xdist hypothesis
    $fetch --no-deps torch==2.10.0
    echo $tree > $packages/tree.pth
    touch $root/.ready
fi

# The name of this file is what Python takes for sys.executable, by which tests start processes.
cat > $there <<END
#!/bin/sh
exec env QEMU_LD_PREFIX=$root PYTHONHOME=$root/usr qemu-aarch64-static -0 $there $root/usr/bin/python3.11 "\$@"
END
chmod +x $there

echo "Compiling"
CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared" CFLAGS=-Werror $python setup.py --quiet build_ext \
    --build-temp $root/objects --build-lib $root/compiled
kernels=$root/compiled/resumerge/native/_kernels.abi3.so
if aarch64-linux-gnu-objdump -d $kernels | grep -E '\s(fn?madd|fn?msub|fmla|fmls)\s'; then
    echo "A multiplication and an addition were contracted to one instruction, which rounds once" >&2
    exit 1
fi

# What it would be on such a machine: a clone that is installed. Python 3.11's bytecode is the same, and made quicker here.
$python -m compileall -qq resumerge tests benchmarks $root/usr/lib/python3.11 || true
rm -rf $tree
mkdir $tree
cp -a resumerge tests benchmarks pyproject.toml $tree
cp $kernels $tree/resumerge/native

words="-m fuzz.kernel_calls.hashes --calls $calls --seed $seed"
echo "$calls calls of each kernel, here and there"
PYTHONPATH=tests $python $words > $root/here.txt
(cd $tree && PYTHONPATH=tests $there $words) > $root/there.txt
diff $root/here.txt $root/there.txt

echo "Recipes, here and there"
$python -m benchmarks.identical --only "$recipes" --save $root/here.json > /dev/null
(cd $tree && PYTHONPATH=tests/support $there -c "
import subprocess, sys, warm_start
subprocess.Popen = warm_start.WarmPopen  # most of a small merge's time is Python's start
from benchmarks.identical.__main__ import main
sys.exit(main())" --only "$recipes" --compare $root/here.json)

# A test has no time limit: qemu takes thirty times as long, and as much more as the machine is busy.
echo "Tests of kernels"
(cd $tree && $there -m pytest -q -p no:cacheprovider --timeout 0 --numprocesses auto --dist worksteal \
    tests/kernels tests/native --ignore tests/native/test_the_sources_are_clean.py)
