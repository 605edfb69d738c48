# Build, install, try and test unipgas. `make help` lists what there is.

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
DESTDIR ?=
# What runs a program that is built for another machine.
RUN ?=

CARGO ?= cargo
INSTALL ?= install
OBJCOPY ?= objcopy

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Cargo's folder for another target is named for that.
FOR := $(patsubst %.json,%,$(notdir $(CARGO_BUILD_TARGET)))
RELEASE := $(TARGET)/$(if $(FOR),$(FOR)/)release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# What Rust's own library needs when libunipgas.a is linked; libgcc, the compiler adds itself.
NATIVE_LIBS := -lutil -lrt -lpthread -lm -ldl -lc

SONAME := libunipgas.so.0
SCRIPTS := gaspi_run gaspi_cleanup gaspi_logger rccerun irccerun
COMPILERS := $(foreach api,gaspi utofu rcce ircce,$(api)cc $(api)cxx)
LINKS := libunipgas.so libGPI2.so libGPI2.so.0 libGPI2-dbg.so libtofucom.so libunipgas-fi.so libRCCE.so libiRCCE.so
# Build files written for the SCC name the archive of one of eight builds.
RCCE_BUILDS := $(foreach flags,bigflags smallflags,$(foreach api,gory nongory,$(foreach power,pwrmgmt nopwrmgmt,$(flags)_$(api)_$(power))))
ARCHIVE_LINKS := libGPI2.a libGPI2-dbg.a libtofucom.a libRCCE.a libiRCCE.a $(RCCE_BUILDS:%=libRCCE_%.a) $(RCCE_BUILDS:%=libiRCCE_%.a)
# In the archive too, a program or tool may put its own function before ours.
WEAK := gaspi_* RCCE_* iRCCE_* id_compare print_dividers
HEADERS := $(wildcard api-*/include/*.h)
# Compiled by users: modules are the compiler's own.
FORTRAN := api-gaspi/fortran/gaspi.f90
# In a folder of its own, as an MPI may have a header of that name.
MPI_HEADER := fjmpi/mpi-ext.h
PKGCONFIG := unipgas.pc GPI2.pc tofucom.pc RCCE.pc iRCCE.pc
CMAKE := $(foreach package,unipgas GPI2,$(package)/$(package)Config.cmake $(package)/$(package)ConfigVersion.cmake)
# Of Environment Modules, and of Lmod.
MODULES := $(VERSION) $(VERSION).lua
FILL := PREFIX="$(PREFIX)" BINDIR="$(BINDIR)" LIBDIR="$(LIBDIR)" INCLUDEDIR="$(INCLUDEDIR)" DATADIR="$(DATADIR)" VERSION="$(VERSION)" \
    NATIVE_LIBS="$(NATIVE_LIBS)" packaging/fill
# Pages about several commands, which have links to them.
PAGES := $(foreach page,gaspi_run rccerun,$(page).1)
PAGE_LINKS := gaspi_cleanup.1=gaspi_run.1 gaspi_logger.1=gaspi_run.1 irccerun.1=rccerun.1 $(COMPILERS:%=%.1=unipgas-cc.1)

DEMO := $(TARGET)/demo
STAGE := $(TARGET)/stage

.DEFAULT_GOAL := build
.PHONY: build compile install uninstall demo test test-all test-verbs test-arm order miri fuzz lint prepare clean help

build: prepare ## the command and the libraries, optimised (the default); root gets missing packages installed
	@$(MAKE) --no-print-directory compile

compile: ## the same, where packages are never installed
	packaging/optimised $(CARGO) build --release -p unipgas-command
	# By themselves: beside an rlib cargo does not optimise them across crates. Last: the build above leaves such ones behind.
	packaging/optimised $(CARGO) rustc --release -p unipgas --lib --crate-type cdylib,staticlib

install: ## into PREFIX (/usr/local), below DESTDIR; builds first if nothing is built; installs no packages
	@test -f $(RELEASE)/libunipgas.so -a -f $(RELEASE)/unipgas || { packaging/prepare look && $(MAKE) --no-print-directory compile; }
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(INCLUDEDIR)"
	$(INSTALL) -m 755 $(RELEASE)/unipgas $(addprefix packaging/,$(SCRIPTS)) "$(DESTDIR)$(BINDIR)/"
	for link in $(COMPILERS); do ln -sf unipgas "$(DESTDIR)$(BINDIR)/$$link" || exit 1; done
	$(INSTALL) -m 644 $(HEADERS) $(FORTRAN) "$(DESTDIR)$(INCLUDEDIR)/"
	$(INSTALL) -D -m 644 api-utofu/include/$(MPI_HEADER) "$(DESTDIR)$(INCLUDEDIR)/$(MPI_HEADER)"
	$(INSTALL) -m 755 $(RELEASE)/libunipgas.so "$(DESTDIR)$(LIBDIR)/$(SONAME)"
	for link in $(LINKS); do ln -sf $(SONAME) "$(DESTDIR)$(LIBDIR)/$$link" || exit 1; done
	$(OBJCOPY) --wildcard $(WEAK:%=--weaken-symbol='%') $(RELEASE)/libunipgas.a "$(DESTDIR)$(LIBDIR)/libunipgas.a"
	chmod 644 "$(DESTDIR)$(LIBDIR)/libunipgas.a"
	for link in $(ARCHIVE_LINKS); do ln -sf libunipgas.a "$(DESTDIR)$(LIBDIR)/$$link" || exit 1; done
	for file in $(PKGCONFIG); do $(FILL) packaging/$$file.in "$(DESTDIR)$(LIBDIR)/pkgconfig/$$file" || exit 1; done
	for file in $(CMAKE); do $(FILL) packaging/cmake/$${file#*/}.in "$(DESTDIR)$(LIBDIR)/cmake/$$file" || exit 1; done
	$(FILL) packaging/modules/unipgas.tcl.in "$(DESTDIR)$(DATADIR)/modulefiles/unipgas/$(VERSION)"
	$(FILL) packaging/modules/unipgas.lua.in "$(DESTDIR)$(DATADIR)/modulefiles/unipgas/$(VERSION).lua"
	$(RUN) $(RELEASE)/unipgas pages "$(DESTDIR)$(DATADIR)"
	$(INSTALL) -m 644 $(PAGES:%=packaging/man/%) "$(DESTDIR)$(DATADIR)/man/man1/"
	for link in $(PAGE_LINKS); do ln -sf $${link#*=} "$(DESTDIR)$(DATADIR)/man/man1/$${link%=*}" || exit 1; done
	# Where the loader looks by itself it looks into its cache. Packages bring it up to date when they are installed.
	@test -n "$(DESTDIR)" || grep -q rpath "$(LIBDIR)/pkgconfig/unipgas.pc" || PATH="$$PATH:/usr/sbin:/sbin" ldconfig \
	    || echo "make install: the loader does not know $(SONAME) yet: as root, run ldconfig" >&2

uninstall: ## removes from PREFIX what install put there
	rm -f $(foreach f,unipgas $(SCRIPTS) $(COMPILERS),"$(DESTDIR)$(BINDIR)/$(f)") \
	    $(foreach f,$(notdir $(HEADERS) $(FORTRAN)) $(MPI_HEADER),"$(DESTDIR)$(INCLUDEDIR)/$(f)") \
	    $(foreach f,$(SONAME) $(LINKS) libunipgas.a $(ARCHIVE_LINKS),"$(DESTDIR)$(LIBDIR)/$(f)") \
	    $(foreach f,$(PKGCONFIG),"$(DESTDIR)$(LIBDIR)/pkgconfig/$(f)") \
	    $(foreach f,$(CMAKE),"$(DESTDIR)$(LIBDIR)/cmake/$(f)") $(foreach f,$(MODULES),"$(DESTDIR)$(DATADIR)/modulefiles/unipgas/$(f)") \
	    $(foreach f,$(PAGES) $(foreach link,$(PAGE_LINKS),$(firstword $(subst =, ,$(link)))),"$(DESTDIR)$(DATADIR)/man/man1/$(f)")
	rm -f "$(DESTDIR)$(DATADIR)"/man/man1/unipgas.1 "$(DESTDIR)$(DATADIR)"/man/man1/unipgas-*.1 \
	    $(foreach f,bash-completion/completions/unipgas zsh/site-functions/_unipgas fish/vendor_completions.d/unipgas.fish,"$(DESTDIR)$(DATADIR)/$(f)")
	-rmdir "$(DESTDIR)$(INCLUDEDIR)/$(dir $(MPI_HEADER))" "$(DESTDIR)$(LIBDIR)/cmake/unipgas" "$(DESTDIR)$(LIBDIR)/cmake/GPI2" \
	    "$(DESTDIR)$(DATADIR)/modulefiles/unipgas" 2>/dev/null

demo: build ## builds everything, compiles a GASPI program and runs it on 4 processes
	@$(MAKE) --no-print-directory install PREFIX="$(DEMO)" DESTDIR= >/dev/null
	"$(DEMO)/bin/unipgas" cc --api gaspi -O2 examples/gaspi/heat2d.c -o "$(DEMO)/heat2d"
	"$(DEMO)/bin/unipgas" run -n 4 "$(DEMO)/heat2d"

lint: prepare ## format, clippy and documentation without warnings, as the tests demand them
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# Models of what threads share without locks, and of locks.
LOOM := bell biased element_locks gate inbox lanes limbo steps

# Where the time goes, in seconds.
TIMES := $(TARGET)/test-times
STEP := packaging/step "$(TIMES)"

# What providers of libfabric demand of their users, and offer: each once in `test`, and one by one in `test-all` (packaging/strict_libfabric.c).
STRICT := context,keysize=4,inject=0,max=1024,waw=1024,tx=8,rx=16,av=4,busy=5,data=4 local,virt,allocated,provkey,endpoint,context2,unordered,rxdata
STRICTLY := local local,virt,allocated,provkey local,endpoint context context2 virt,provkey endpoint keysize=4 inject=0 inject=8 max=1024 waw=1024 unordered \
    data=0 data=4 tx=8 rx=16 av=4 busy=5 rxdata nocntr

# Another copy of the library stands for the machine's.
OWN_TOFU := env UNIPGAS_LIB=$(RELEASE)/libunipgas.so packaging/with-own-tofu

# The same behind a mock with the machine's limits.
MOCK_TOFU := env UNIPGAS_LIB=$(RELEASE)/libunipgas.so packaging/with-mock-tofu
# A machine with little of everything.
POOR_TOFU := toq=16,vcqs=2,late=3 tnis=1,toq=4

# Of backends/verbs/fake: what adapters differ in.
DEVICES := atomics=glob max_qp_wr=4,inline=16 late=7 link=ib,max_srq_wr=256,max_cqe=256

test: ## lints, Rust and header tests, all laws on shm, some elsewhere, examples, foreign programs; ends at the first failure; says where the time went
	@mkdir -p "$(TARGET)" && rm -f "$(TIMES)"
	@packaging/prepare test
	# The optimised build keeps one core busy for minutes: the other one has something else to do. Loom: the lock-free structures under the
	# model checker; elsewhere, as everything is compiled anew for it.
	@$(STEP) "optimised build" packaging/quietly $(MAKE) --no-print-directory build & build=$$!; \
	$(STEP) "lints" $(MAKE) --no-print-directory lint \
	    && $(STEP) "Rust and header tests" $(CARGO) test --workspace \
	    && RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$(TARGET)/loom" $(STEP) "loom models" \
	        $(CARGO) test -p unipgas-core $(LOOM:%=--test %_loom); \
	status=$$?; wait $$build && exit $$status
	@$(MAKE) --no-print-directory install PREFIX="$(STAGE)" DESTDIR= >/dev/null
	@UNIPGAS_LIB=$(RELEASE)/libunipgas.so $(STEP) "symbols" $(CARGO) test --workspace --test symbols
	@$(STEP) "packages of the crates" packaging/run-crates
	@$(STEP) "laws on shm" "$(STAGE)/bin/unipgas" conform --backend shm
	@$(STEP) "instructions of fast paths" packaging/run-instructions "$(STAGE)"
	# As most people run it; where this is root, as a user without privileges.
	@$(STEP) "laws on shm, as an ordinary user" packaging/as-user "$(STAGE)" --backend shm --seeds 3
	@for api in core gaspi rcce libfabric; do \
	    $(STEP) "laws on chaos, $$api" "$(STAGE)/bin/unipgas" conform --backend chaos --api $$api --seeds 8 || exit 1; \
	done
	# Every packet of a gate is held back: under all seeds that takes minutes.
	@$(STEP) "laws on chaos, utofu" "$(STAGE)/bin/unipgas" conform --backend chaos --api utofu --seeds 3
	@$(STEP) "laws on opaque" packaging/on-opaque "$(STAGE)" core gaspi rcce
	@$(STEP) "laws of the engine on shm beside opaque" "$(STAGE)/bin/unipgas" conform --backend mixed --api core --seeds 3
	@$(STEP) "laws on a poor network" "$(STAGE)/bin/unipgas" conform --backend opaque-poor --api core --seeds 2
	@for demands in $(STRICT); do \
	    $(STEP) "laws on a strict provider of libfabric" packaging/on-strict "$(STAGE)" $$demands \
	        --law core.transport,gaspi.write,gaspi.read --seeds 1 --limit 90 || exit 1; \
	done
	@for hosts in 2 3 4; do \
	    $(STEP) "operations in a barrier of $$hosts hosts" packaging/on-strict "$(STAGE)" keysize=8 --hosts $$hosts barriers || exit 1; \
	done
	@packaging/on-strict "$(STAGE)" raw --says FI_MR_RAW && packaging/on-strict "$(STAGE)" norm --says FI_RM_DISABLED
	@$(STEP) "laws of the engine on libfabric" packaging/on-ofi "$(STAGE)" --backend ofi --api core --seeds 1
	@$(STEP) "deaths and replacements on libfabric" packaging/on-ofi "$(STAGE)" --backend ofi --law gaspi.killed,gaspi.replaced,gaspi.stopped --seeds 1
	@$(STEP) "laws of networks on libfabric 2.x" packaging/with-libfabric2 \
	    packaging/on-ofi "$(STAGE)" --backend ofi --api core --law transport --seeds 1
	@for api in core gaspi utofu rcce libfabric; do \
	    $(STEP) "laws on verbs, $$api" packaging/with-fake-verbs "$(STAGE)/bin/unipgas" conform --backend verbs --api $$api --seeds 1 || exit 1; \
	done
	@for api in core gaspi utofu libfabric; do \
	    $(STEP) "laws on tofu, $$api" $(OWN_TOFU) "$(STAGE)/bin/unipgas" conform --backend tofu --api $$api --seeds 1 || exit 1; \
	done
	# A process begins and ends more often than a program does, and each time costs VCQs.
	@OWN_TOFU="UNIPGAS_BACKEND=shm UTOFU_NUM_SESSION_MODE_CQS=0" $(STEP) "laws on tofu, rcce" $(OWN_TOFU) \
	    "$(STAGE)/bin/unipgas" conform --backend tofu --api rcce --seeds 1
	@OWN_TOFU="UNIPGAS_BACKEND=chaos UNIPGAS_SEED=7" $(STEP) "laws on tofu over chaos" $(OWN_TOFU) \
	    "$(STAGE)/bin/unipgas" conform --backend tofu --law core.transport,core.put,core.get,core.notice,core.atomic,gaspi.write,gaspi.notify --seeds 1
	@$(STEP) "laws of the engine on a strict tofu" $(MOCK_TOFU) "$(STAGE)/bin/unipgas" conform --backend tofu-mock --api core --seeds 1
	@for poor in $(POOR_TOFU); do \
	    MOCK_TOFU=$$poor $(STEP) "laws of GASPI on a tofu with $$poor" $(MOCK_TOFU) "$(STAGE)/bin/unipgas" conform \
	        --backend tofu-mock --law gaspi.write,gaspi.notify,gaspi.atomic --seeds 1 || exit 1; \
	done
	@UNIPGAS_LIB=$(RELEASE)/libunipgas.so $(STEP) "errors of uTofu" packaging/run-faults "$(STAGE)" few
	@$(STEP) "laws of the engine on tofu under chaos" $(OWN_TOFU) "$(STAGE)/bin/unipgas" conform --backend tofu-chaos --api core --seeds 1
	@$(STEP) "laws of the engine on shm beside verbs" packaging/with-fake-verbs "$(STAGE)/bin/unipgas" conform --backend mixed-verbs --api core --seeds 1
	@$(STEP) "atomics of GASPI on shm beside verbs" packaging/with-fake-verbs "$(STAGE)/bin/unipgas" conform --backend mixed-verbs --law gaspi.atomic --seeds 3
	@$(STEP) "laws of the engine on verbs under chaos" packaging/with-fake-verbs "$(STAGE)/bin/unipgas" conform --backend verbs-chaos --api core --seeds 1
	@$(STEP) "requests in a barrier over a device" packaging/run-counts "$(STAGE)"
	@UNIPGAS_LIB=$(RELEASE)/libunipgas.so $(STEP) "calls of the machine's uTofu library" packaging/run-tofu-calls "$(STAGE)"
	@for device in $(DEVICES); do \
	    $(STEP) "laws of networks on a device with $$device" env FAKE_VERBS=$$device packaging/with-fake-verbs \
	        "$(STAGE)/bin/unipgas" conform --backend verbs --law transport,core.atomic,core.put,core.get,core.notice --seeds 1 || exit 1; \
	done
	@$(STEP) "laws of networks in a guest with RDMA" packaging/on-verbs "$(STAGE)" --law core.transport --seeds 1
	@$(STEP) "programs between two guests with RDMA" packaging/on-verbs "$(STAGE)" --hosts 2 --law core.put-notify,core.atomic.exclusive,core.barrier --seeds 1
	@$(STEP) "a guest that is destroyed" packaging/on-verbs "$(STAGE)" --lost
	@$(STEP) "packages" packaging/run-packages "$(STAGE)" "$(TARGET)"
	@$(STEP) "examples" packaging/run-examples "$(STAGE)" 1 2 5 12
	@$(STEP) "the book" packaging/run-book "$(STAGE)"
	@$(STEP) "programs under debugging tools" packaging/run-debuggers "$(STAGE)"
	@$(STEP) "programs that may not do all" packaging/run-bad-days "$(STAGE)"
	@$(STEP) "programs that hang" packaging/run-hangs "$(STAGE)"
	@$(STEP) "what is told, and timelines" packaging/run-seen "$(STAGE)"
	@$(STEP) "foreign launchers" packaging/run-launchers "$(STAGE)"
	@$(STEP) "several hosts" packaging/run-hosts "$(STAGE)"
	@$(STEP) "laws on two hosts" packaging/on-hosts "$(STAGE)" --api core --seeds 3
	@$(STEP) "deaths and replacements on two hosts" packaging/on-hosts "$(STAGE)" --law gaspi.killed,gaspi.replaced --seeds 1
	@$(STEP) "the link between two hosts" packaging/on-hosts "$(STAGE)" --api gaspi --law .link. --seeds 1
	@$(STEP) "a launcher that is killed" packaging/on-hosts "$(STAGE)" --law .link.launcher --seeds 1
	@$(STEP) "aarch64" packaging/test-arm "$(TARGET)" part
	@$(STEP) "foreign programs" packaging/run-clients "$(STAGE)"
	@packaging/step "$(TIMES)"

test-all: test ## what `test` does, all laws in all columns and on hosts, order under 1,000 seeds, Miri (hours)
	@$(STEP) "Miri" $(MAKE) --no-print-directory miri
	@$(STEP) "packages of the crates, built" packaging/run-crates verify
	@$(STEP) "all laws on chaos" "$(STAGE)/bin/unipgas" conform --backend chaos
	@$(STEP) "all laws of the engine on opaque under chaos" "$(STAGE)/bin/unipgas" conform --backend opaque-chaos --api core
	@$(STEP) "all laws of uTofu on opaque under chaos" "$(STAGE)/bin/unipgas" conform --backend opaque-chaos --api utofu --seeds 3
	@for api in gaspi rcce libfabric; do \
	    $(STEP) "all laws of $$api on opaque under chaos" "$(STAGE)/bin/unipgas" conform --backend opaque-chaos --api $$api --seeds 3 || exit 1; \
	done
	@$(STEP) "order under 1,000 seeds" $(MAKE) --no-print-directory order
	@$(STEP) "all laws on shm, where memory is copied" "$(STAGE)/bin/unipgas" conform --backend shm-copy
	@$(STEP) "all laws between threads" "$(STAGE)/bin/unipgas" conform --backend loopback
	@$(STEP) "all laws on shm beside opaque" "$(STAGE)/bin/unipgas" conform --backend mixed
	@$(STEP) "all laws on opaque" "$(STAGE)/bin/unipgas" conform --backend opaque
	@$(STEP) "all laws on opaque, over TCP" "$(STAGE)/bin/unipgas" conform --backend opaque-tcp
	@$(STEP) "all laws on a poor network" "$(STAGE)/bin/unipgas" conform --backend opaque-poor
	@for api in gaspi rcce utofu libfabric; do \
	    $(STEP) "all laws of $$api on libfabric" packaging/on-ofi "$(STAGE)" --backend ofi --api $$api --seeds 1 || exit 1; \
	done
	@for demands in $(STRICTLY); do \
	    $(STEP) "laws on libfabric with $$demands" packaging/on-strict "$(STAGE)" $$demands \
	        --law core.transport,gaspi.write,gaspi.read,gaspi.atomic,gaspi.notify,gaspi.stopped --seeds 1 --limit 90 || exit 1; \
	done
	# Whoever has nothing to sleep on looks around all the time: the law core.transport.idle does not hold there.
	@$(STEP) "laws on libfabric with nowait" packaging/on-strict "$(STAGE)" nowait \
	    --law transport.put,transport.get,transport.wake,transport.ordered,transport.message,transport.dies,gaspi.write,gaspi.read,gaspi.stopped \
	    --seeds 1 --limit 90
	@for api in core gaspi rcce utofu libfabric; do \
	    $(STEP) "$$api on two hosts over libfabric" packaging/on-ofi "$(STAGE)" --hosts 2 --api $$api --seeds 1 || exit 1; \
	done
	@$(STEP) "the link between two hosts over libfabric" packaging/on-ofi "$(STAGE)" --hosts 2 --law .link. --seeds 1
	@$(STEP) "the engine on two hosts over libfabric 2.x" packaging/with-libfabric2 packaging/on-ofi "$(STAGE)" --hosts 2 --api core --seeds 1
	@$(STEP) "laws of networks over libfabric's verbs" packaging/on-verbs "$(STAGE)" --by-libfabric --law core.transport --seeds 1
	@$(STEP) "the engine between two guests over libfabric's verbs" packaging/on-verbs "$(STAGE)" --by-libfabric --hosts 2 --law core.put,core.get,core.notice --seeds 1
	@for api in gaspi utofu libfabric; do \
	    $(STEP) "all laws of $$api on a strict tofu" $(MOCK_TOFU) "$(STAGE)/bin/unipgas" conform --backend tofu-mock --api $$api --seeds 1 || exit 1; \
	done
	@OWN_TOFU="UNIPGAS_BACKEND=shm UTOFU_NUM_SESSION_MODE_CQS=0" $(STEP) "all laws of rcce on a strict tofu" $(MOCK_TOFU) \
	    "$(STAGE)/bin/unipgas" conform --backend tofu-mock --api rcce --seeds 1
	@UNIPGAS_LIB=$(RELEASE)/libunipgas.so $(STEP) "all errors of uTofu" packaging/run-faults "$(STAGE)" all
	@$(STEP) "GASPI on two hosts" packaging/on-hosts "$(STAGE)" --api gaspi
	@$(STEP) "RCCE on two hosts" packaging/on-hosts "$(STAGE)" --api rcce
	@$(STEP) "uTofu on two hosts" packaging/on-hosts "$(STAGE)" --api utofu
	@$(STEP) "libfabric on two hosts" packaging/on-hosts "$(STAGE)" --api libfabric
	@$(STEP) "core on three hosts" packaging/on-hosts "$(STAGE)" --hosts 3 --api core --seeds 3
	@$(STEP) "uTofu on three hosts" packaging/on-hosts "$(STAGE)" --hosts 3 --api utofu --seeds 3

# For 48 processes: MiB, and seconds for the guest and for a law.
LARGE_GUEST := RDMA_MEMORY=6144 RDMA_PATIENCE=14400 RDMA_LIMIT=600

test-verbs: build ## all laws on the verbs backend: over devices of software, in a guest with a kernel's RDMA stack, between two guests (hours)
	@$(MAKE) --no-print-directory install PREFIX="$(STAGE)" DESTDIR= >/dev/null
	@for api in core gaspi utofu rcce libfabric; do \
	    $(STEP) "all laws of $$api on verbs" packaging/with-fake-verbs "$(STAGE)/bin/unipgas" conform --backend verbs --api $$api || exit 1; \
	    $(STEP) "all laws of $$api on verbs under chaos" packaging/with-fake-verbs "$(STAGE)/bin/unipgas" conform --backend verbs-chaos --api $$api --seeds 3 || exit 1; \
	done
	@for api in core gaspi utofu rcce; do \
	    $(STEP) "all laws of $$api on shm beside verbs" packaging/with-fake-verbs "$(STAGE)/bin/unipgas" conform --backend mixed-verbs --api $$api || exit 1; \
	done
	@for device in $(DEVICES); do for api in core gaspi; do \
	    $(STEP) "all laws of $$api on a device with $$device" env FAKE_VERBS=$$device packaging/with-fake-verbs \
	        "$(STAGE)/bin/unipgas" conform --backend verbs --api $$api --seeds 1 || exit 1; \
	done; done
	@for api in core gaspi utofu rcce libfabric; do \
	    $(STEP) "all laws of $$api in a guest with RDMA" env $(LARGE_GUEST) packaging/on-verbs "$(STAGE)" --api $$api --seeds 1 || exit 1; \
	    $(STEP) "all laws of $$api between two guests with RDMA" env $(LARGE_GUEST) packaging/on-verbs "$(STAGE)" --hosts 2 --api $$api --seeds 1 || exit 1; \
	done
	@$(STEP) "the link between two guests with RDMA" packaging/on-verbs "$(STAGE)" --hosts 2 --law .link. --seeds 1
	@$(STEP) "a guest that is destroyed" packaging/on-verbs "$(STAGE)" --lost

test-arm: ## for aarch64, emulated: the engine's tests, all laws on shm, examples, instructions of fast paths, some of it on an A64FX
	@packaging/test-arm "$(TARGET)"

# As aarch64: without the assembly of x86-64, which Miri cannot look into. Addresses of shared memory go through integers, as other processes and C
# know them by nothing else: their provenance is exposed.
MIRI := PKG_CONFIG_ALLOW_CROSS=1 PROPTEST_CASES=8 CARGO_TARGET_DIR="$(TARGET)/miri" \
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" $(CARGO) +nightly miri test --target aarch64-unknown-linux-gnu

miri: ## the engine's unsafe code under Miri, which sees undefined behaviour (nightly Rust; minutes)
	@packaging/prepare miri
	$(MIRI) -p unipgas-core --lib -- descriptor:: fabric:: memory:: message:: panics:: queues:: sync::
	$(MIRI) -p unipgas-core --test atomic_exclusive --test atomic_table --test atomic_threads --test inbox --test loopback_threads

fuzz: ## what reads foreign bytes, under libFuzzer: a minute for each reader (nightly Rust, cargo-fuzz)
	@packaging/fuzz

# Laws whose names say that they are about order.
order: ## the laws about order on chaos, under 1,000 seeds (an hour; after `make build`)
	@$(MAKE) --no-print-directory install PREFIX="$(STAGE)" DESTDIR= >/dev/null
	"$(STAGE)/bin/unipgas" conform --backend chaos --law .order,-order,overtaking --seeds 1000

prepare: ## looks for the packages that the build needs, and installs them if it can
	@packaging/prepare

clean: ## removes what was built
	$(CARGO) clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
