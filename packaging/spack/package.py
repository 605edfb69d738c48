# For Spack: copy this file to packages/unipgas/package.py in your repository. Then, in a
# checkout of unipgas: spack dev-build unipgas@0.1.0
from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Unipgas(MakefilePackage):
    """One-sided communication (PGAS) for parallel programs: one engine behind GASPI (compatible
    with source written for GPI-2), uTofu, RCCE and iRCCE, and a provider for libfabric."""

    license("MIT OR Apache-2.0")

    version("0.1.0")

    variant("ofi", default=True, description="libfabric as the network between hosts")

    depends_on("c", type=("build", "run"))
    depends_on("cxx", type=("build", "run"))
    depends_on("rust@1.88:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("binutils", type="build")
    depends_on("hwloc@2:")
    # Loaded at run time; no program is linked with it.
    depends_on("libfabric@1.14:", type="run", when="+ofi")

    conflicts("platform=darwin", msg="unipgas is for Linux")
    requires("target=x86_64:", "target=aarch64:", policy="one_of", msg="x86-64 and aarch64")

    build_targets = ["compile"]

    @property
    def install_targets(self):
        return ["install", f"PREFIX={self.prefix}", "DESTDIR="]

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # Keeps cargo's downloads in the build directory.
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        if self.spec.satisfies("+ofi"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["libfabric"].libs.directories[0])

    def check(self):
        # `make test` would install system packages.
        pass

    @property
    def libs(self):
        return find_libraries("libunipgas", root=self.prefix, shared=True, recursive=True)

    @run_after("install")
    def keep_test_sources(self):
        cache_extra_test_sources(
            self, ["examples/gaspi/hello.c", "examples/gaspi/success_or_die.h"]
        )

    def test_hello(self):
        """a GASPI program is compiled and runs"""
        source = join_path(self.test_suite.current_test_cache_dir, "examples/gaspi/hello.c")
        Executable(self.prefix.bin.gaspicc)(source, "-o", "hello")
        command = Executable(self.prefix.bin.unipgas)
        out = command("run", "-n", "2", "./hello", output=str.split, error=str.split)
        check_outputs("hello from rank 1 of 2", out)
