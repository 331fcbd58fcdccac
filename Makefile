# lace: the one build file.
#
#   make            build build/lace, build/liblace.a and build/liblace.so
#   make demo       install what is missing, build, and tell a story with the built-in model; without a card,
#                   without the kernels of GPUs
#   make test       install what is missing, build, and run all tests; QUICK=1 leaves out the slowest
#   make check      formatting, layers (who includes whom), CPU levels
#   make load       the server's tests in full size: 1,000 streams, 10,000 connections and faults
#   make bench      time the kernels of this machine
#   make asan       the tests under AddressSanitizer and UBSan
#   make tsan       the tests of what has threads under ThreadSanitizer; TSAN_TESTS= names others
#   make fuzz       build the libFuzzer targets (clang); see tests/fuzz/README.md
#   make replay     run the fuzz targets on their corpora
#   make test-web   the page in a browser and real clients against the server (node, chromium)
#   make test-card  CUDA kernels and models on a card made of software (nvcc, no GPU)
#   make test-vulkan  shaders and golden models through Vulkan, watched by the validation layer
#   make arm        the kernels' checks for aarch64, cross-compiled, under qemu
#   make cuda       compile the GPU kernels (nvcc)
#   make vulkan     compile the shaders (glslang-tools, spirv-tools, libvulkan-dev)
#   make release    build/release/lace with its libraries linked in: one file for Linux with glibc 2.34 or newer
#   make install    into $(PREFIX), below $(DESTDIR) if that is set; make uninstall takes it away again
#   make python     build/python: the Python package, and its tests with make test-python
#   make wheel      build/wheel/lace-*.whl, which carries the library
#   make deb        build/deb/*.deb (debhelper)
#   make dist       build/lace-VERSION.tar.gz, the source
#   make windows    build/windows/lace.exe with mingw-w64; its libraries by scripts/build-libraries.sh
#   make abi        compare lace.h as it is with packaging/liblace.abi (abigail-tools)
#
# Everything is built below $(B). A variant is another folder: make B=build/clang CC=clang
# V=1 shows whole commands.

CC      ?= cc
OBJCOPY ?= objcopy
B       ?= build
PREFIX  ?= /usr/local
OPT     ?= -O3 -g
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-unused-parameter
WERROR  ?=
SAN     ?=
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
ARCH    := $(firstword $(subst -, ,$(MACHINE)))
WINDOWS := $(findstring mingw,$(MACHINE))

# Libraries of others: those of the library, and those of the program alone.
LIB_PKG  := libpcre2-8 libutf8proc jansson libcrypto
# Images need three libraries. Without them a file stands in that says so; IMAGES= (nothing) leaves
# them out on purpose.
IMAGE_PKG := libjpeg libpng libwebp
ifeq ($(origin IMAGES),undefined)
IMAGES := $(shell pkg-config --exists $(IMAGE_PKG) 2>/dev/null && echo yes)
endif
LIB_PKG  += $(if $(IMAGES),$(IMAGE_PKG))
# Lines that are typed are edited with libedit. EDIT= (nothing) leaves it out on purpose.
ifeq ($(origin EDIT),undefined)
EDIT := $(if $(WINDOWS),,yes)
endif
LIBS_PKG := $(LIB_PKG) libevent libevent_openssl libssl $(if $(EDIT),libedit)
EDIT_LEFT_OUT := $(if $(EDIT),%/chat_editor_absent.c,%/chat_editor.c)
# The same objects make the program, the archive and the shared library. Only the names of lace.h are
# seen outside of it, and no program takes their place inside: that is as fast as code that stays put.
SHARABLE := -fPIC -fvisibility=hidden -fno-semantic-interposition
CFLAGS   := -std=c17 $(OPT) $(WARN) $(WERROR) $(SAN) $(SHARABLE) -fno-math-errno -ffp-contract=off
CPPFLAGS := -Iinclude -Isrc $(shell pkg-config --cflags $(LIBS_PKG) 2>/dev/null)
LIBS     := $(shell pkg-config --libs $(LIBS_PKG) 2>/dev/null)
LDLIBS   = $(LIBS) -lm -lpthread -ldl
LDFLAGS  := $(SAN) -Wl,--as-needed $(LDFLAGS_MORE)

# Windows: base/windows is its POSIX, and its files replace those of base that have the same name before
# "_windows". Libraries are linked in. Its stack is aligned to 16 bytes, and gcc does not know that of
# its own vectors: no move may ask for more (gcc bug 54412).
ifneq ($(WINDOWS),)
EXE      := .exe
SHARABLE :=
CFLAGS   := $(filter-out -fPIC -fvisibility=% -fno-semantic-interposition -std=c17,$(CFLAGS)) \
            -std=gnu17 -Wno-format -Wno-attributes -Werror=implicit-function-declaration -Wa,-muse-unaligned-vector-move
CPPFLAGS := -Isrc/base/windows/include -include src/base/windows/posix.h -D__USE_MINGW_ANSI_STDIO=1 \
            -D_FILE_OFFSET_BITS=64 -D_WIN32_WINNT=0x0A00 -DPCRE2_STATIC -DUTF8PROC_STATIC $(CPPFLAGS)
LIBS     := $(shell pkg-config --static --libs $(LIBS_PKG) 2>/dev/null)
LDLIBS    = $(LIBS) -lws2_32 -lbcrypt -lsynchronization -lcrypt32 -liphlpapi -lshell32 -lm
LDFLAGS  := $(SAN) -static -Wl,--wrap=main
endif

# Use every core; a -j on the command line wins.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

# ---- Sources -------------------------------------------------------------------------------------

# CPU levels, and the templates that are compiled once for each of them.
include src/backend/cpu/levels.mk
LEVELS      := $(LEVELS_all) $(LEVELS_$(ARCH))
TEMPLATES   := $(patsubst %_tmpl.c,%,$(notdir $(wildcard src/backend/cpu/*_tmpl.c)))
HAVE_A_LINE := $(patsubst TMPL_%,%,$(filter TMPL_%,$(.VARIABLES)))
$(foreach t,$(filter-out $(HAVE_A_LINE),$(TEMPLATES)),$(error $(t)_tmpl.c has no line in levels.mk))
$(foreach t,$(filter-out $(TEMPLATES),$(HAVE_A_LINE)),$(error levels.mk: there is no $(t)_tmpl.c))
level_objs   = $(patsubst %,$(B)/obj/src/backend/cpu/$(1).%.o,$(filter $(LEVELS),$(TMPL_$(1))))
LEVEL_OBJ   := $(foreach t,$(TEMPLATES),$(call level_objs,$(t)))
# A few files are for one level, which their names end in; those of another machine are left out.
OTHER_LEVELS := $(filter-out $(LEVELS),$(LEVELS_x86_64) $(LEVELS_aarch64))

# Downloads need libcurl: its headers here, the library when the program runs. Without the headers a
# file stands in that says so. CURL= (nothing) leaves it out on purpose.
ifeq ($(origin CURL),undefined)
CURL := $(shell $(CC) -E -include curl/curl.h -x c /dev/null >/dev/null 2>&1 && echo yes)
endif
IMAGE_LEFT_OUT := $(if $(IMAGES),%/decode_absent.c,%/decode.c)
CURL_LEFT_OUT := $(if $(CURL),%/http_absent.c,%/http_get.c %/curl_api.c)

# The Vulkan backend needs a compiler of shaders, their checker and Vulkan's headers. Without all three
# a file stands in for it that says so. VULKAN= (nothing) leaves it out on purpose.
ifeq ($(origin VULKAN),undefined)
VULKAN := $(shell command -v glslangValidator >/dev/null && command -v spirv-val >/dev/null && \
            $(CC) -E -include vulkan/vulkan_core.h -x c /dev/null >/dev/null 2>&1 && echo yes)
endif
VULKAN_LEFT_OUT := $(if $(VULKAN),%/vulkan_absent.c,$(filter-out %/vulkan_absent.c %/launch_ranges.c,\
                     $(wildcard src/backend/vulkan/*.c)))

# Its shaders, and what they include. All variants share what is compiled of them.
VULKAN_SRC := $(if $(VULKAN),$(sort $(wildcard src/backend/vulkan/*.comp)))
VULKAN_B   := build/vulkan
VULKAN_SPV := $(patsubst src/backend/vulkan/%.comp,$(VULKAN_B)/%.spv,$(VULKAN_SRC))
VULKAN_INCLUDED := $(wildcard src/backend/vulkan/*.glsl) src/backend/vulkan/vulkan_params.h \
                   src/backend/vulkan/vulkan_types.def src/backend/lora_piece.h

# Ranks over MPI are a plugin, which only mpicc can build. Without it a program has no ranks on several
# machines, and says so. MPICC= (nothing) leaves it out on purpose.
ifeq ($(origin MPICC),undefined)
MPICC := $(shell command -v mpicc)
endif
MPI_PLUGIN := $(if $(MPICC),$(B)/lace_mpi.so)

# What only one system has.
SYSTEM_LEFT_OUT := $(if $(WINDOWS),$(patsubst src/base/windows/%_windows.c,src/base/%.c,\
                     $(wildcard src/base/windows/*_windows.c)) %/rank_mpi_open.c,src/base/windows/% %/rank_mpi_absent.c)

# The library is everything but the programs.
LIB_DIRS := base rank place tensor formats hub image tokenizer vocab hf ops plan state backend model runner grammar sampler jinja chat compress engine
LIB_SRC  := $(filter-out %_tmpl.c %/rank_mpi.c $(foreach level,$(OTHER_LEVELS),%_$(level).c) $(VULKAN_LEFT_OUT) $(CURL_LEFT_OUT) $(IMAGE_LEFT_OUT) $(SYSTEM_LEFT_OUT),\
                $(sort $(shell find $(wildcard $(LIB_DIRS:%=src/%)) -name '*.c')))
CLI_SRC  := $(filter-out $(EDIT_LEFT_OUT),$(sort $(wildcard src/cli/*.c src/cli/*.S src/server/*.c src/server/*.S)))
TEST_SRC := $(sort $(wildcard tests/unit/test_*.c tests/golden/test_*.c tests/server/test_*.c))
KERNEL_TEST_SRC := $(filter-out $(if $(VULKAN),,%/check_vulkan.c),$(sort $(wildcard tests/kernels/*.c)))
WEB_TESTS := $(sort $(wildcard tests/web/test_*.sh tests/clients/test_*.sh))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
# One of the examples needs SQLite.
EXAMPLES := $(patsubst examples/%.c,$(B)/examples/%,$(filter-out \
                $(shell pkg-config --exists sqlite3 || echo examples/search.c),$(wildcard examples/*.c)))

COMMA := ,
obj = $(patsubst %,$(B)/obj/%.o,$(1))
LIB_OBJ  := $(call obj,$(LIB_SRC)) $(LEVEL_OBJ)
CLI_OBJ  := $(call obj,$(CLI_SRC))
# Those that start programs are not for Windows.
TAP_OBJ  := $(call obj,$(filter-out $(if $(WINDOWS),tests/cost.c tests/fake_hub.c tests/served.c,tests/cost_absent.c),$(wildcard tests/*.c)))
TESTS    := $(patsubst %.c,$(B)/%$(EXE),$(TEST_SRC))
# QUICK=1 leaves out those that search, wait or repeat for longest.
SLOW     := unit/test_fit unit/test_perplexity unit/test_killed server/test_faults server/test_hostile \
            server/test_connections
ifneq ($(QUICK),)
TESTS    := $(filter-out $(SLOW:%=$(B)/tests/%$(EXE)),$(TESTS))
endif
TESTS    := $(filter-out $(LEAVE_OUT:%=$(B)/tests/%$(EXE)),$(TESTS))

# The flags of the level that the name of a file ends in, if it does.
level_flags = $(FLAGS_$(lastword $(subst _, ,$(basename $(notdir $(1))))))

# $(call say,verb) in front of a command: print what is done to which file, and hide the command.
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $@;)

# ---- Building ------------------------------------------------------------------------------------

.PHONY: all demo test check bench asan tsan fuzz cuda install release clean deps tests run-tests
.DEFAULT_GOAL := all

all: $(B)/lace$(EXE) $(B)/liblace.a $(if $(WINDOWS),,$(B)/liblace.so $(MPI_PLUGIN))

$(B)/obj/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,cc)$(CC) $(CPPFLAGS) $(CFLAGS) $(call level_flags,$<) -Itests -MMD -MP -c -o $@ $<

define level_rule
$(B)/obj/src/backend/cpu/%.$(1).o: src/backend/cpu/%_tmpl.c
	@mkdir -p $$(@D)
	$$(call say,cc)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(FLAGS_$(1)) -DLEVEL=$(1) -MMD -MP -c -o $$@ $$<
endef
$(foreach level,$(LEVELS),$(eval $(call level_rule,$(level))))

$(B)/obj/%.S.o: %.S
	@mkdir -p $(@D)
	$(call say,as)$(CC) $(CPPFLAGS) -c -o $@ $<

$(B)/lace_mpi.so: src/rank/rank_mpi.c src/rank/rank_mpi.h src/rank/rank.h include/lace.h
	@mkdir -p $(@D)
	$(call say,mpicc)OMPI_CC="$(CC)" $(MPICC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -o $@ $<

# The built-in model is part of the program.
$(B)/obj/src/cli/builtin_model.S.o: models/default.gguf

# So is the server's page.
$(B)/obj/src/server/page_assets.S.o: src/server/page_assets.def $(wildcard web/*)

$(B)/liblace.a: $(LIB_OBJ) $(B)/obj/cuda_images.S.o $(B)/obj/vulkan_shaders.S.o
	@rm -f $@
	$(call say,ar)$(AR) rcs $@ $^

$(B)/lace$(EXE): $(CLI_OBJ) $(B)/liblace.a
	$(call say,link)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The shared library. ABI is raised when a released function or struct of lace.h changes; make abi tells.
ABI    := 1
SONAME := liblace.so.$(ABI)
SHARED_FLAGS := -shared -Wl,-soname,$(SONAME) -Wl,--version-script=src/liblace.map $(if $(SAN),,-Wl,-z,defs)
$(B)/$(SONAME): $(LIB_OBJ) $(B)/obj/cuda_images.S.o $(B)/obj/vulkan_shaders.S.o src/liblace.map
	$(call say,link)$(CC) $(LDFLAGS) $(SHARED_FLAGS) -o $@ $(filter %.o,$^) \
	    $$(pkg-config --libs $(LIB_PKG)) -lm -lpthread -ldl

$(B)/liblace.so: $(B)/$(SONAME)
	@ln -sf $(SONAME) $@

# The test data of a clone: what tests/data describes, as files. All variants share it.
DATA := build/data/.made
$(DATA): scripts/expand-test-data.pl models/tales-4m.gguf $(shell find tests/data -type f 2>/dev/null)
	$(call say,data)scripts/expand-test-data.pl $(@D)

$(B)/tests/%$(EXE): $(B)/obj/tests/%.c.o $(TAP_OBJ) $(B)/liblace.a | $(DATA)
	@mkdir -p $(@D)
	$(call say,link)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The parser of requests is part of the program, not of the library.
HTTP_OBJ := $(B)/obj/src/server/http_parse.c.o
$(B)/tests/unit/test_http_parse$(EXE) $(B)/fuzz_http $(B)/tests/fuzz/replay_http: $(HTTP_OBJ)

# So are progress bars.
$(B)/tests/unit/test_progress$(EXE): $(call obj,src/cli/progress.c src/cli/terminal.c)
$(B)/tests/unit/test_word_wrap$(EXE): $(call obj,src/cli/word_wrap.c)

# And what lists the models of a server.
MODELS_FILE_OBJ := $(call obj,src/cli/models_file.c src/cli/args.c src/cli/foreign_names.c)
$(B)/tests/server/test_models $(B)/fuzz_models_file $(B)/tests/fuzz/replay_models_file: $(MODELS_FILE_OBJ)
$(B)/tests/server/test_models $(B)/tests/fuzz/replay_models_file: LDLIBS := $(B)/liblace.a $(LDLIBS)

$(B)/checkkernels$(EXE): $(call obj,$(KERNEL_TEST_SRC)) $(TAP_OBJ) $(B)/liblace.a
	$(call say,link)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# What a card of software does with matrices.
WARP_MATRIX_OBJ := $(call obj,$(addprefix tests/card/,matrix_sums.c warp_matrix.c warp_group.c bulk_copy.c))
$(B)/tests/unit/test_warp_matrix $(B)/tests/unit/test_warp_group $(B)/tests/unit/test_bulk_copy: $(WARP_MATRIX_OBJ)

$(B)/examples/search: LDLIBS += -lsqlite3
$(B)/examples/%: $(B)/obj/examples/%.c.o $(B)/liblace.a
	@mkdir -p $(@D)
	$(call say,link)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# A card made of software: NVIDIA's driver as a library that computes the PTX of kernels on the processor
# (tests/card/libcuda.c). Programs find it by LD_LIBRARY_PATH. It has no other compiler's flags, because
# registers of 32 lanes want the widest vectors that this machine has, and no sanitizer's: it is opened
# by dlopen.
SOFT_CARD       := $(B)/tests/card/libcuda.so.1
SOFT_CARD_SRC   := $(sort $(wildcard tests/card/*.c))
SOFT_CARD_OBJ   := $(patsubst tests/card/%.c,$(B)/tests/card/%.o,$(SOFT_CARD_SRC))
SOFT_CARD_FLAGS := -std=c17 -D_GNU_SOURCE -O3 -march=native -fPIC -fvisibility=hidden -ffp-contract=off \
                   -fno-math-errno -fno-trapping-math -fno-strict-aliasing $(WARN) -Wno-missing-prototypes \
                   $(if $(findstring clang,$(CC)),-Wno-pass-failed,-mprefer-vector-width=512) $(WERROR)
.PHONY: soft-card test-card run-test-card
soft-card: $(SOFT_CARD)
$(B)/tests/card/%.o: tests/card/%.c
	@mkdir -p $(@D)
	$(call say,cc)$(CC) $(SOFT_CARD_FLAGS) -MMD -MP -c -o $@ $<
$(B)/tests/card/ptx_rounding.o: SOFT_CARD_FLAGS += -frounding-math
$(SOFT_CARD): $(SOFT_CARD_OBJ)
	$(call say,link)$(CC) -shared -o $@ $^ -Wl,-z,defs -lm -lpthread -ldl
-include $(SOFT_CARD_OBJ:.o=.d)

# ---- Running -------------------------------------------------------------------------------------

# Packages first, then a second make: its flags come from pkg-config, which must see them.
deps:
	@scripts/install-deps.sh

# Kernels of GPUs take minutes to compile. The demo has them where there is a card, where they are compiled
# already, or where NVCC= names the compiler.
CARD      := $(firstword $(wildcard /dev/nvidiactl /dev/dxg))
DEMO_CUDA  = $(or $(CARD),$(filter command environment,$(origin NVCC)),$(if $(filter-out $(wildcard $(CUDA_BIN)),$(CUDA_BIN)),,compiled))
demo: deps
	@$(MAKE) --no-print-directory $(B)/lace $(if $(DEMO_CUDA),,NVCC= \
	    CPU_ONLY="no NVIDIA card here: the demo leaves out the kernels for it$(COMMA) which make builds")
	$(B)/lace run -p "Once upon a time" -n 200 --seed 12

test: deps
	@$(MAKE) --no-print-directory run-tests

# Libraries that make system calls fail under a program, by LD_PRELOAD.
PRELOADS := $(patsubst tests/preload/%.c,$(B)/tests/preload/%.so,$(wildcard tests/preload/*.c))
$(B)/tests/preload/%.so: tests/preload/%.c
	@mkdir -p $(@D)
	$(call say,cc)$(CC) -std=c17 -O1 $(WARN) $(WERROR) -shared -fPIC -o $@ $< -ldl

CHECKKERNELS := $(if $(KERNEL_TEST_SRC),$(B)/checkkernels$(EXE))
tests: $(B)/lace $(B)/liblace.so $(MPI_PLUGIN) $(TESTS) $(CHECKKERNELS) $(EXAMPLES) $(PRELOADS) $(SOFT_CARD)

# QUICK and QUICK_KERNELS: the kernels' checks with fewer shapes.
CHECK := $(if $(CHECKKERNELS),$(if $(QUICK)$(QUICK_KERNELS),$(B)/check-quick,$(CHECKKERNELS)))
$(B)/check-quick: $(CHECKKERNELS)
	@printf '#!/bin/sh\nexec %s --quick\n' $< >$@ && chmod +x $@

# One program at a time: a failure is easier to read. JOBS=2: two, the longest first.
LONGEST   := unit/test_fit unit/test_perplexity unit/test_killed unit/test_quantize server/test_connections \
             unit/test_guess unit/test_cli_verbs server/test_listening unit/test_pull unit/test_makefile \
             unit/test_outputs unit/test_calibrate_kinds server/test_lost_device unit/test_prune
BY_LENGTH  = $(CHECK) $(filter $(LONGEST:%=$(B)/tests/%$(EXE)),$(TESTS)) \
             $(filter-out $(LONGEST:%=$(B)/tests/%$(EXE)),$(TESTS))
run-tests: tests $(CHECK)
	@LACE_BIN=$(B)/lace LACE_EXAMPLES=$(B)/examples LACE_TESTS=$(B)/tests scripts/run-tests.pl \
	    $(if $(JOBS),--jobs $(JOBS) $(BY_LENGTH),$(TESTS) $(CHECK))

# The server as others see it; what is not installed is skipped, with CI=1 it is a failure.
.PHONY: test-web
test-web: $(B)/lace $(DATA)
	@LACE_BIN=$(B)/lace CI=$(CI) scripts/run-tests.pl $(WEB_TESTS)

.PHONY: load
load: $(B)/lace $(B)/tests/server/test_connections $(B)/tests/server/test_errors \
      $(B)/tests/server/test_faults
	@LACE_BIN=$(B)/lace LACE_LOAD=1 $(B)/tests/server/test_connections
	@LACE_BIN=$(B)/lace LACE_LOAD=1 $(B)/tests/server/test_errors
	@LACE_BIN=$(B)/lace LACE_FAULTS=10000 $(B)/tests/server/test_faults

check:
	@scripts/check-layers.sh
	@scripts/check-levels.sh
	@scripts/check-format.sh
	@scripts/models-table.pl --check docs/models.md

bench: $(B)/checkkernels
	$(B)/checkkernels --bench

# Left out: test_fit searches for minutes there, through what test_quantize and test_calibrate compute as well;
# test_killed ends programs before they can report; test_makefile looks at this file. Kernels are checked
# without their largest shapes, which loop over what the smaller ones read and write. Reports need lines, not
# the names of variables (-g1).
ASAN := OPT="-O1 -g1 -fno-omit-frame-pointer" SAN="-fsanitize=address,undefined -fno-sanitize-recover=all"
asan:
	@$(MAKE) --no-print-directory run-tests B=build/asan $(ASAN) \
	    LEAVE_OUT="unit/test_fit unit/test_killed unit/test_makefile" QUICK_KERNELS=1 JOBS=2

# Sessions, the batcher and the server; TSAN_TESTS=all takes every test. Programs that tests start are
# watched too, so reports are collected in files.
TSAN_TESTS ?= unit/test_base unit/test_session unit/test_prefix_tree unit/test_batcher \
              server/test_serve server/test_agents server/test_access server/test_log
TSAN_REPORT := build/tsan/report
tsan:
	@rm -f $(TSAN_REPORT).*
	@TSAN_OPTIONS="log_path=$(CURDIR)/$(TSAN_REPORT)" \
	    $(MAKE) --no-print-directory run-tests B=build/tsan OPT="-O1 -g1" SAN="-fsanitize=thread" \
	    $(if $(filter-out all,$(TSAN_TESTS)),TESTS="$(TSAN_TESTS:%=build/tsan/tests/%)" CHECKKERNELS= EXAMPLES=)
	@! cat $(TSAN_REPORT).* 2>/dev/null

# ---- Fuzzing -------------------------------------------------------------------------------------

# Targets for libFuzzer, and the same ones run on their corpora with any compiler: tests/fuzz/README.md
fuzz:
	@$(MAKE) --no-print-directory fuzz-targets B=build/fuzz CC=clang OPT="-O1 -g" \
	    SAN="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"

replay:
	@$(MAKE) --no-print-directory run-replay B=build/asan $(ASAN)

REPLAYS := $(patsubst tests/fuzz/fuzz_%.c,$(B)/tests/fuzz/replay_%,$(FUZZ_SRC))
.PHONY: replay fuzz-targets run-replay
fuzz-targets: $(patsubst tests/fuzz/%.c,$(B)/%,$(FUZZ_SRC))
run-replay: $(REPLAYS)
	@scripts/run-tests.pl --jobs 2 $(REPLAYS)

# Parsers need no kernels but those that read numbers; the others take minutes to compile with a
# fuzzer's probes. An archive, so that a target takes from it only what it uses.
$(B)/libparsers.a: $(filter-out $(B)/obj/src/backend/%,$(LIB_OBJ)) $(TAP_OBJ)
	@rm -f $@
	$(call say,ar)$(AR) rcs $@ $^

# The ways of whole models need all kernels: compiled without probes, but for the plain ones.
FUZZ_KERNELS := $(filter $(B)/obj/src/backend/%,$(LIB_OBJ))
ifneq ($(findstring fuzzer,$(SAN)),)
$(filter-out $(B)/obj/src/backend/ref/% %.plain.o,$(FUZZ_KERNELS)): CFLAGS := $(filter-out -fsanitize=% -fno-sanitize-%,$(CFLAGS))
endif
$(B)/fuzz_load $(B)/fuzz_load_dir $(B)/fuzz_tower: $(FUZZ_KERNELS) $(B)/obj/cuda_images.S.o $(B)/obj/vulkan_shaders.S.o

$(B)/fuzz_%: $(B)/obj/tests/fuzz/fuzz_%.c.o $(B)/libparsers.a
	$(call say,link)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(B)/libparsers.a $(LDLIBS)

$(B)/tests/fuzz/replay_%: $(B)/obj/tests/fuzz/fuzz_%.c.o $(B)/obj/tests/fuzz/replay.c.o $(TAP_OBJ) \
                          $(B)/liblace.a
	@mkdir -p $(@D)
	$(call say,link)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# ---- Vulkan --------------------------------------------------------------------------------------

# Shaders and golden models on the first device, watched by the validation layer. Mesa's, which runs on
# the processor, is enough; there subgroups of 4, 8 and 16 are tried. Launches of models run in the
# reverse order where they may, so that a missing barrier is seen. Shaders must translate to Metal's
# language, too. CI=1: what is missing is a failure.
.PHONY: test-vulkan
test-vulkan: $(B)/checkkernels $(B)/tests/golden/test_golden $(B)/tests/golden/test_encoders \
             $(B)/tests/unit/test_overlap $(VULKAN_SPV)
	@if $< --level vulkan --op add | grep 'vulkan # SKIP'; then \
	    echo "0 passed, 0 failed, 1 skipped"; [ -z "$(CI)" ]; else \
	    $(MAKE) --no-print-directory run-test-vulkan; fi

.PHONY: run-test-vulkan
run-test-vulkan:
	@printf '#!/bin/sh\nexec %s --quick --level vulkan $$CHECK\n' $(B)/checkkernels >$(B)/check-vulkan
	@chmod +x $(B)/check-vulkan
	@export LACE_VULKAN_DEBUG=validate; scripts/run-tests.pl $(B)/check-vulkan || exit 1; for width in 128 512; do \
	    CHECK="--op products" LP_NATIVE_VECTOR_WIDTH=$$width scripts/run-tests.pl $(B)/check-vulkan || exit 1; done
	@LACE_VULKAN_DEBUG=validate,reverse LACE_DEVICE=vulkan \
	    scripts/run-tests.pl $(B)/tests/golden/test_golden $(B)/tests/golden/test_encoders $(B)/tests/unit/test_overlap
	@for f in $(filter-out %_dot4.spv %_matrix.spv %_emulated.spv,$(VULKAN_SPV)); do \
	    spirv-cross --msl --msl-version 30000 $$f --output $$f.metal || exit 1; done

# A choice of what a card is tried with: kernels against their references, and whole models, on a card of
# 8.0 and one of 9.0, whose own kernels are there if their PTX is (.ci/run). Two minutes of
# processor time. Everything else that LACE_DEVICE=cuda means runs in the same way.
CARD_CHECKS := rms_norm,layer_norm,conv,delta,route,scan,mix,match,cutoff,lora_down,lora_up,add_given,gpu_heads,gpu_sample
test-card: $(SOFT_CARD) $(B)/checkkernels $(B)/tests/golden/test_golden $(B)/tests/unit/test_cuda $(B)/tests/unit/test_cuda_types
	@if [ -z "$(CUDA_SRC)" ]; then echo "skipped: CUDA kernels on a card of software: nvcc is not installed"; \
	    echo "0 passed, 0 failed, 1 skipped"; else \
	    $(MAKE) --no-print-directory run-test-card; fi
run-test-card:
	@printf '#!/bin/sh\nexec %s --quick --level gpu $$CHECK\n' $(B)/checkkernels >$(B)/check-card
	@printf '#!/bin/sh\nexec %s $$MODEL\n' $(B)/tests/golden/test_golden >$(B)/golden-card
	@chmod +x $(B)/check-card $(B)/golden-card
	@export LD_LIBRARY_PATH=$(B)/tests/card LACE_DEVICE=cuda; \
	    LACE_CARD=races=1 CHECK="--op $(CARD_CHECKS)" scripts/run-tests.pl $(B)/check-card && \
	    CHECK="--op gpu_matmul --type f16,q8_0,q4_k,s4" scripts/run-tests.pl $(B)/check-card && \
	    LACE_CARD=major=9 CHECK="--op gpu_matmul,gpu_bytes --type q4_k" scripts/run-tests.pl $(B)/check-card && \
	    MODEL=llama scripts/run-tests.pl $(B)/tests/unit/test_cuda $(B)/tests/unit/test_cuda_types $(B)/golden-card && \
	    LACE_CARD=major=9,early=1 MODEL=qwen3moe scripts/run-tests.pl $(B)/golden-card && \
	    LACE_CARD=major=9,turns=1 scripts/run-tests.pl $(B)/tests/unit/test_cuda_types

# ---- Another machine -----------------------------------------------------------------------------

# Kernels and their checks alone: they need none of the libraries. Each level runs on a processor that
# has no more than it, so that an instruction of a higher one is seen. CI=1: missing tools are a failure.
ARM_CC  ?= aarch64-linux-gnu-gcc
QEMU    ?= qemu-aarch64
ARM_SRC := $(filter-out %/json_read.c %/digest.c %/record_log.c src/backend/cuda/% src/backend/vulkan/% src/backend/mixed/% \
               src/backend/backends.c src/backend/large_math.c,\
               $(filter src/base/% src/rank/% src/tensor/% src/ops/% src/plan/% src/backend/%,$(LIB_SRC))) \
           $(filter-out $(wildcard tests/kernels/check_gpu*.c) %/check_vulkan.c,$(KERNEL_TEST_SRC)) \
           tests/tap.c tests/random_blocks.c
.PHONY: arm arm-check
arm:
	@if command -v $(ARM_CC) >/dev/null && command -v $(QEMU) >/dev/null; then \
	    $(MAKE) --no-print-directory arm-check B=build/arm CC=$(ARM_CC); \
	else echo "arm: not checked, $(ARM_CC) or $(QEMU) is not installed"; \
	    echo "0 passed, 0 failed, 3 skipped"; [ -z "$(CI)" ]; fi

$(B)/checkkernels-static: $(call obj,$(ARM_SRC)) $(LEVEL_OBJ)
	$(call say,link)$(CC) -static -o $@ $^ -lm -lpthread

arm-check: $(B)/checkkernels-static
	@for each in cortex-a53:neon cortex-a76:dotprod max:i8mm; do \
	    printf '#!/bin/sh\nexec %s -cpu %s %s --quick --level %s\n' \
	        $(QEMU) $${each%:*} $< $${each#*:} >$(B)/check-$${each#*:}; \
	    chmod +x $(B)/check-$${each#*:}; done
	@scripts/run-tests.pl --jobs 3 $(B)/check-neon $(B)/check-dotprod $(B)/check-i8mm

# The program for Windows: gcc-mingw-w64-x86-64. tests/deploy/try_windows.sh tries it with wine.
.PHONY: windows
WINDOWS_CC   ?= x86_64-w64-mingw32-gcc
WINDOWS_LIBS ?= build/windows/libraries
windows:
	@scripts/build-libraries.sh windows $(WINDOWS_LIBS)
	@PKG_CONFIG_LIBDIR=$(WINDOWS_LIBS)/lib/pkgconfig $(MAKE) --no-print-directory B=build/windows CC=$(WINDOWS_CC) \
	    NVCC= VULKAN= CURL= MPICC= IMAGES= $(or $(WINDOWS_GOALS),all)

# ---- GPU -----------------------------------------------------------------------------------------

# Kernels are compiled into fat binaries that are part of the program. Without nvcc the program has
# none and runs on the CPU only. NVCC= (nothing) leaves them out on purpose. All variants share them:
# no flag of the host's compiler changes them. `make install` takes what was built, so it asks the
# build which compiler it had, or that it had none.
BUILT_BY  := $(if $(filter install,$(MAKECMDGOALS)),\
               $(shell sed -n '1s,^/[*] nvcc: \(.*\) [*]/$$,nvcc: \1,p' $(B)/cuda/images.S 2>/dev/null))
ifneq ($(strip $(BUILT_BY)),)
NVCC      ?= $(wordlist 2,99,$(BUILT_BY))
endif
NVCC      ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_SRC  := $(if $(NVCC),$(sort $(wildcard src/backend/cuda/*.cu)))
CUDA_B    ?= build/cuda
CUDA_BIN  := $(patsubst src/backend/cuda/%.cu,$(CUDA_B)/%.fatbin,$(CUDA_SRC))
# Cards of 8.0 to 8.9, of 9.0 and of 12.0 have code of their own; others make it of the PTX.
CUDA_ARCH ?= -gencode arch=compute_80,code=[sm_80,compute_80] \
             -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_120,code=sm_120
CUDA_FLAGS := -std=c++17 -O3 -Isrc -Iinclude --threads 2 -Werror all-warnings -Xfatbin -compress-all $(CUDA_MORE)

cuda: $(CUDA_BIN)
	@$(if $(NVCC),,echo "cuda: nvcc is not installed, lace runs on the CPU only")

$(CUDA_B)/%.fatbin: src/backend/cuda/%.cu
	@mkdir -p $(@D)
	$(call say,nvcc)$(NVCC) $(CUDA_FLAGS) $(CUDA_ARCH) -MD -MP -MT $@ -MF $(@:.fatbin=.d) -fatbin -o $@ $<

# How the assembler names what is only read, what holds addresses, and a stack that is not executed.
ASM_BYTES     := .section $(if $(WINDOWS),.rdata$(COMMA) "dr",.rodata)
ASM_ADDRESSES := .section $(if $(WINDOWS),.rdata$(COMMA) "dr",.data.rel.ro$(COMMA) "aw")
ASM_END       := $(if $(WINDOWS),,.section .note.GNU-stack$(COMMA) ""$(COMMA) %progbits)

# A table of their addresses, ended by 0. Written anew only when the list of kernels changes.
$(B)/cuda/images.S: FORCE
	@mkdir -p $(@D)
	@{ echo '/* nvcc: $(NVCC) */'; echo '$(ASM_ADDRESSES)'; echo '.balign 64'; echo '.globl gpu_images'; \
	   echo 'gpu_images:'; for f in $(CUDA_BIN); do echo ".quad image_$$(basename $$f .fatbin)"; done; \
	   echo '.quad 0'; echo '$(ASM_BYTES)'; for f in $(CUDA_BIN); do \
	   echo '.balign 64'; echo "image_$$(basename $$f .fatbin): .incbin \"$$f\""; done; \
	   echo '$(ASM_END)'; } >$@.new
	@cmp -s $@ $@.new && rm $@.new || { mv $@.new $@; $(if $(NVCC),true,\
	    echo "  note  $(or $(CPU_ONLY),no nvcc: this lace runs on the CPU only)"); }

.PHONY: FORCE

$(B)/obj/cuda_images.S.o: $(B)/cuda/images.S $(CUDA_BIN)
	@mkdir -p $(@D)
	$(call say,as)$(CC) -c -o $@ $<

# Shaders, checked and embedded.
.PHONY: vulkan
vulkan: $(VULKAN_SPV)
	@$(if $(VULKAN),,echo "vulkan: glslang-tools, spirv-tools or libvulkan-dev is not installed, lace has no Vulkan")

# Compilers know only NVIDIA's matrices; a script makes KHR's of them.
$(VULKAN_B)/%.spv: src/backend/vulkan/%.comp $(VULKAN_INCLUDED) scripts/khr_matrix.pl
	@mkdir -p $(@D)
	$(call say,glsl)glslangValidator --quiet --target-env vulkan1.2 -V -DSHADER -Isrc -Isrc/backend/vulkan -o $@.new $< && \
	    spirv-val --target-env vulkan1.3 --scalar-block-layout $@.new && \
	    $(if $(filter %_matrix,$*),scripts/khr_matrix.pl $@.new $@ && rm $@.new,mv $@.new $@)

# Where each one begins and ends. Written anew only when the list of shaders changes.
$(B)/vulkan/shaders.S: FORCE
	@mkdir -p $(@D)
	@{ echo '$(ASM_BYTES)'; for f in $(VULKAN_SPV); do n=vulkan_code_$$(basename $$f .spv); \
	   echo '.balign 16'; echo ".globl $$n, $${n}_end"; echo "$$n: .incbin \"$$f\""; echo "$${n}_end:"; done; \
	   echo '$(ASM_END)'; } >$@.new
	@cmp -s $@ $@.new && rm $@.new || { mv $@.new $@; $(if $(VULKAN),true,\
	    echo "  note  no glslang, spirv-val or Vulkan headers: this lace has no Vulkan"); }

$(B)/obj/vulkan_shaders.S.o: $(B)/vulkan/shaders.S $(VULKAN_SPV)
	@mkdir -p $(@D)
	$(call say,as)$(CC) -c -o $@ $<

# ---- Giving it away ------------------------------------------------------------------------------

include packaging/packages.mk

# Other libraries come from their archives; only the C library's own files stay shared. Our names are
# hidden first: archives, unlike shared libraries, collide (jansson too has a utf8_encode).
RELEASE := $(B)/release
release: $(CLI_OBJ) $(B)/liblace.a
	@mkdir -p $(RELEASE)
	$(call say,link)$(LD) -r -o $(RELEASE)/program.o $^
	@objcopy -G main $(RELEASE)/program.o
	@$(CC) $(LDFLAGS) -o $(RELEASE)/lace $(RELEASE)/program.o \
	    -Wl,-Bstatic $$(pkg-config --static --libs $(LIBS_PKG) | sed 's/-lm //g; s/-lm$$//') -lmd \
	    -Wl,-Bdynamic -lm -lpthread -ldl
	@rm $(RELEASE)/program.o
	@strip $(RELEASE)/lace
	@! ldd $(RELEASE)/lace | grep -vE 'linux-vdso|ld-linux|lib(c|m|dl|pthread|rt)\.so' || \
	    { echo "release: the libraries above are still shared" >&2; exit 1; }

# Keep objects of tests: make would delete them as intermediate.
.SECONDARY:

-include $(shell find $(B)/obj $(CUDA_B) -name '*.d' 2>/dev/null)

clean:
	rm -rf build
