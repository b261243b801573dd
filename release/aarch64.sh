#!/bin/sh
# Does the program give the bits on aarch64 that it gives here? The kernels are compiled for aarch64, and an aarch64
# Python (Debian's, with wheels from the index) runs them under qemu: random calls of all kernels, their tests that need
# no torch, and merges of recipes. `make aarch64`.
# Once before, on Debian 12, as root:
#   dpkg --add-architecture arm64 && apt update && apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
set -eu
python=$1 calls=$2 seed=$3 recipes=$4
root=$PWD/build/aarch64
there=$root/python package=$root/package

if ! [ -e $root/.ready ]; then
    mkdir -p $root/debs
    (cd $root/debs && apt-get download -qq python3.11-minimal:arm64 libpython3.11-minimal:arm64 \
        libpython3.11-stdlib:arm64 libc6:arm64 zlib1g:arm64 libexpat1:arm64 libssl3:arm64 libffi8:arm64 \
        libbz2-1.0:arm64 liblzma5:arm64 libgcc-s1:arm64 libstdc++6:arm64 libsqlite3-0:arm64 libuuid1:arm64)
    for deb in $root/debs/*.deb; do dpkg-deb --extract "$deb" $root; done
    $python -m pip install --quiet --upgrade --target $root/packages --constraint constraints.txt \
        --only-binary :all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 \
        --requirement without-torch.txt pytest pytest-timeout pytest-xdist hypothesis
    touch $root/.ready
fi

cat > $there <<END
#!/bin/sh
exec env QEMU_LD_PREFIX=$root PYTHONHOME=$root/usr PYTHONPATH=$package:$root/packages:$PWD/tests \
    PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 qemu-aarch64-static $root/usr/bin/python3.11 "\$@"
END
chmod +x $there

echo "Compiling"
rm -rf $package
mkdir $package
cp -r resumerge $package
rm -f $package/resumerge/native/*.so
flags=$($python -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb"))
print(*t["tool"]["setuptools"]["ext-modules"][0]["extra-compile-args"])')
aarch64-linux-gnu-gcc $flags -Werror -fPIC -shared -o $package/resumerge/native/_kernels.abi3.so \
    -I"$($python -c 'import sysconfig; print(sysconfig.get_path("include"))')" resumerge/native/*.c -lm
if aarch64-linux-gnu-objdump -d $package/resumerge/native/_kernels.abi3.so |
    grep -E '\s(fn?madd|fn?msub|fmla|fmls)\s'; then
    echo "A multiplication and an addition were contracted to one instruction, which rounds once" >&2
    exit 1
fi

words="-m fuzz.kernel_calls.hashes --calls $calls --seed $seed"
echo "$calls calls of each kernel, here and there"
PYTHONPATH=tests $python $words > $root/here.txt
$there $words > $root/there.txt
diff $root/here.txt $root/there.txt

echo "Recipes, here and there"
$python -m benchmarks.identical --only "$recipes" --save $root/here.json > /dev/null
$python -m benchmarks.identical --only "$recipes" --command "$there -m resumerge" --compare $root/here.json

echo "Tests of kernels that need no torch"
$there -m pytest -q -p no:cacheprovider tests/kernels --ignore tests/kernels/test_the_benchmark_runs.py \
    --ignore tests/kernels/test_leading_singular_values.py
