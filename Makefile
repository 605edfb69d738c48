# Builds, installs and tests unipgas. `make help` lists the targets.

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
DESTDIR ?=
# A command that runs programs of another architecture, such as an emulator.
RUN ?=

CARGO ?= cargo
INSTALL ?= install
OBJCOPY ?= objcopy
# Removes the debug information of Rust's own library from archives.
STRIP ?= --strip-debug

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# With another target, cargo builds in a folder of the target's name.
FOR := $(patsubst %.json,%,$(notdir $(CARGO_BUILD_TARGET)))
BUILT := $(TARGET)/$(if $(FOR),$(FOR)/)
# The folders of the libraries and programs to install.
LIBRARIES ?= $(BUILT)release
PROGRAMS ?= $(BUILT)tools
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Libraries that Rust's own library needs in a link with libunipgas.a. The compiler adds libgcc itself.
NATIVE_LIBS := -lutil -lrt -lpthread -lm -ldl -lc

SONAME := libunipgas.so.0
# Programs that `unipgas` executes.
SUBCOMMANDS := conform bench
SCRIPTS := gaspi_run gaspi_cleanup gaspi_logger rccerun irccerun
COMPILERS := $(foreach api,gaspi utofu rcce ircce,$(api)cc $(api)cxx)
LINKS := libunipgas.so libGPI2.so libGPI2.so.0 libGPI2-dbg.so libtofucom.so libunipgas-fi.so libRCCE.so libiRCCE.so
# Build files for the SCC name the archive of one of eight builds.
RCCE_BUILDS := $(foreach flags,bigflags smallflags,$(foreach api,gory nongory,$(foreach power,pwrmgmt nopwrmgmt,$(flags)_$(api)_$(power))))
ARCHIVE_LINKS := libGPI2.a libGPI2-dbg.a libtofucom.a libRCCE.a libiRCCE.a $(RCCE_BUILDS:%=libRCCE_%.a) $(RCCE_BUILDS:%=libiRCCE_%.a)
# These symbols are weak in the archive, so a program or tool can replace the functions, as with the shared library.
WEAK := gaspi_* RCCE_* iRCCE_* RC_* id_compare print_dividers
HEADERS := $(wildcard api-*/include/*.h)
# Users compile the module: each compiler has its own format of modules.
FORTRAN := api-gaspi/fortran/gaspi.f90
# In a separate folder, because an MPI may have a header of this name.
MPI_HEADER := fjmpi/mpi-ext.h
PKGCONFIG := unipgas.pc GPI2.pc tofucom.pc RCCE.pc iRCCE.pc
CMAKE := $(foreach package,unipgas GPI2,$(package)/$(package)Config.cmake $(package)/$(package)ConfigVersion.cmake)
# Module files for Environment Modules and for Lmod.
MODULES := $(VERSION) $(VERSION).lua
FILL := PREFIX="$(PREFIX)" BINDIR="$(BINDIR)" LIBDIR="$(LIBDIR)" INCLUDEDIR="$(INCLUDEDIR)" DATADIR="$(DATADIR)" VERSION="$(VERSION)" \
    NATIVE_LIBS="$(NATIVE_LIBS)" packaging/fill
# Man pages for several commands. Each command has a link to its page.
PAGES := $(foreach page,gaspi_run rccerun,$(page).1)
PAGE_LINKS := gaspi_cleanup.1=gaspi_run.1 gaspi_logger.1=gaspi_run.1 irccerun.1=rccerun.1 $(COMPILERS:%=%.1=unipgas-cc.1)

DEMO := $(TARGET)/demo
STAGE := $(TARGET)/stage
SHIPPED := $(TARGET)/shipped

.DEFAULT_GOAL := build
.PHONY: build compile programs libraries install uninstall demo stage shipped test test-all flaky lint prepare clean help

build: prepare ## the programs and the libraries, as users get them (the default); root gets missing packages installed
	@$(MAKE) --no-print-directory compile

compile: ## the same, where packages are never installed
	@$(MAKE) --no-print-directory -j2 programs libraries

# Two builds in parallel: the last step of link-time optimisation uses one core only.
programs:
	packaging/optimised $(CARGO) build --profile tools -p unipgas-command -p unipgas-conformance -p unipgas-bench

# Built without the rlib: cargo optimises across crates only if it makes no Rust crate type.
libraries:
	packaging/optimised $(CARGO) rustc --release -p unipgas-c --lib --crate-type cdylib,staticlib

install: ## into PREFIX (/usr/local), below DESTDIR; builds first if nothing is built; installs no packages
	@test -f $(LIBRARIES)/libunipgas_c.so -a -f $(PROGRAMS)/unipgas || { UNIPGAS_NO_INSTALL=1 packaging/prepare && $(MAKE) --no-print-directory compile; }
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(INCLUDEDIR)"
	$(INSTALL) -m 755 $(PROGRAMS)/unipgas $(addprefix packaging/,$(SCRIPTS)) "$(DESTDIR)$(BINDIR)/"
	for program in $(SUBCOMMANDS:%=unipgas-%); do $(INSTALL) -m 755 $(PROGRAMS)/$$program "$(DESTDIR)$(BINDIR)/" || exit 1; done
	for link in $(COMPILERS); do ln -sf unipgas "$(DESTDIR)$(BINDIR)/$$link" || exit 1; done
	$(INSTALL) -m 644 $(HEADERS) $(FORTRAN) "$(DESTDIR)$(INCLUDEDIR)/"
	$(INSTALL) -D -m 644 api-utofu/include/$(MPI_HEADER) "$(DESTDIR)$(INCLUDEDIR)/$(MPI_HEADER)"
	$(INSTALL) -m 755 $(LIBRARIES)/libunipgas_c.so "$(DESTDIR)$(LIBDIR)/$(SONAME)"
	for link in $(LINKS); do ln -sf $(SONAME) "$(DESTDIR)$(LIBDIR)/$$link" || exit 1; done
	packaging/one-object $(LIBRARIES)/libunipgas_c.a "$(DESTDIR)$(LIBDIR)/libunipgas.a"
	$(OBJCOPY) $(STRIP) --wildcard $(WEAK:%=--weaken-symbol='%') "$(DESTDIR)$(LIBDIR)/libunipgas.a"
	chmod 644 "$(DESTDIR)$(LIBDIR)/libunipgas.a"
	for link in $(ARCHIVE_LINKS); do ln -sf libunipgas.a "$(DESTDIR)$(LIBDIR)/$$link" || exit 1; done
	for file in $(PKGCONFIG); do $(FILL) packaging/$$file.in "$(DESTDIR)$(LIBDIR)/pkgconfig/$$file" || exit 1; done
	for file in $(CMAKE); do $(FILL) packaging/cmake/$${file#*/}.in "$(DESTDIR)$(LIBDIR)/cmake/$$file" || exit 1; done
	$(FILL) packaging/modules/unipgas.tcl.in "$(DESTDIR)$(DATADIR)/modulefiles/unipgas/$(VERSION)"
	$(FILL) packaging/modules/unipgas.lua.in "$(DESTDIR)$(DATADIR)/modulefiles/unipgas/$(VERSION).lua"
	for name in $(SUBCOMMANDS); do $(RUN) $(PROGRAMS)/unipgas-$$name --describe-options >$(PROGRAMS)/$$name.options || exit 1; done
	$(RUN) $(PROGRAMS)/unipgas pages "$(DESTDIR)$(DATADIR)" $(foreach name,$(SUBCOMMANDS),--options $(name)=$(PROGRAMS)/$(name).options)
	$(INSTALL) -m 644 $(PAGES:%=packaging/man/%) "$(DESTDIR)$(DATADIR)/man/man1/"
	for link in $(PAGE_LINKS); do ln -sf $${link#*=} "$(DESTDIR)$(DATADIR)/man/man1/$${link%=*}" || exit 1; done
	# The loader finds libraries in its own directories through its cache. Packages update the cache at installation.
	@test -n "$(DESTDIR)" || grep -q rpath "$(LIBDIR)/pkgconfig/unipgas.pc" || PATH="$$PATH:/usr/sbin:/sbin" ldconfig \
	    || echo "make install: the loader does not know $(SONAME) yet: as root, run ldconfig" >&2

uninstall: ## removes from PREFIX what install put there
	rm -f $(foreach f,unipgas unipgas-conform unipgas-bench $(SCRIPTS) $(COMPILERS),"$(DESTDIR)$(BINDIR)/$(f)") \
	    $(foreach f,$(notdir $(HEADERS) $(FORTRAN)) $(MPI_HEADER),"$(DESTDIR)$(INCLUDEDIR)/$(f)") \
	    $(foreach f,$(SONAME) $(LINKS) libunipgas.a $(ARCHIVE_LINKS),"$(DESTDIR)$(LIBDIR)/$(f)") \
	    $(foreach f,$(PKGCONFIG),"$(DESTDIR)$(LIBDIR)/pkgconfig/$(f)") \
	    $(foreach f,$(CMAKE),"$(DESTDIR)$(LIBDIR)/cmake/$(f)") $(foreach f,$(MODULES),"$(DESTDIR)$(DATADIR)/modulefiles/unipgas/$(f)") \
	    $(foreach f,$(PAGES) $(foreach link,$(PAGE_LINKS),$(firstword $(subst =, ,$(link)))),"$(DESTDIR)$(DATADIR)/man/man1/$(f)")
	rm -f "$(DESTDIR)$(DATADIR)"/man/man1/unipgas.1 "$(DESTDIR)$(DATADIR)"/man/man1/unipgas-*.1 \
	    $(foreach f,bash-completion/completions/unipgas zsh/site-functions/_unipgas fish/vendor_completions.d/unipgas.fish,"$(DESTDIR)$(DATADIR)/$(f)")
	-rmdir "$(DESTDIR)$(INCLUDEDIR)/$(dir $(MPI_HEADER))" "$(DESTDIR)$(LIBDIR)/cmake/unipgas" "$(DESTDIR)$(LIBDIR)/cmake/GPI2" \
	    "$(DESTDIR)$(DATADIR)/modulefiles/unipgas" 2>/dev/null

demo: prepare ## builds quickly (no figure comes from this build), compiles a GASPI program and runs it on 4 processes
	packaging/optimised $(CARGO) build --profile quick -p unipgas-command -p unipgas-c
	@$(MAKE) --no-print-directory install PREFIX="$(DEMO)" DESTDIR= LIBRARIES=$(BUILT)quick PROGRAMS=$(BUILT)quick SUBCOMMANDS= >/dev/null
	"$(DEMO)/bin/unipgas" cc --api gaspi -O2 examples/gaspi/heat2d.c -o "$(DEMO)/heat2d"
	"$(DEMO)/bin/unipgas" run -n 4 "$(DEMO)/heat2d"

stage: prepare ## the checked build with all tests, installed in target/stage: most tests use it
	$(CARGO) build --workspace --all-targets
	@$(MAKE) --no-print-directory install PREFIX="$(STAGE)" DESTDIR= LIBRARIES=$(BUILT)debug PROGRAMS=$(BUILT)debug >/dev/null

shipped: prepare libraries ## the libraries that users get with the programs of the checked build, installed in target/shipped
	@$(MAKE) --no-print-directory install PREFIX="$(SHIPPED)" DESTDIR= PROGRAMS=$(BUILT)debug >/dev/null

test: ## the rows of tests/rows with the tier `test`; ends at the first failure
	@tests/run-tests test

test-all: ## all rows (many hours)
	@tests/run-tests all

test-%: ## one row
	@tests/run-tests $*

flaky: shipped ## repeats the laws of deaths, replacements and links (or of KINDS) with the shipped library, N (100) runs for each kind from seed SEED (1) on
	tests/flaky "$(SHIPPED)" $(or $(N),100) $(or $(SEED),1) $(KINDS)

lint: test-lint ## rustfmt and clippy

prepare: ## checks the requirements of the build; root on Debian installs missing packages, unless UNIPGAS_NO_INSTALL=1
	@packaging/prepare

clean: ## removes what was built
	$(CARGO) clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { sub(/%/, "NAME", $$1); printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@tests/run-tests --list
