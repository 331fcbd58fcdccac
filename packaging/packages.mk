# What is given away: installed files, manuals and completion, Python, wheels and Debian packages.
# Part of the Makefile, whose names it uses.

VERSION := $(shell sed -n 's/^.define LACE_VERSION "\(.*\)"/\1/p' include/lace.h)

# Folders below PREFIX; a distribution has its own.
LIBDIR  ?= lib
UNITDIR ?= lib/systemd/system
ZSHDIR  ?= share/zsh/site-functions

# ---- Manuals and completion ----------------------------------------------------------------------

# The program writes them itself, from the tables that its help comes from. Where it was built for
# another machine, RUN is what runs it here: RUN=qemu-aarch64.
VERBS   := $(subst _,-,$(shell sed -n 's/^X(\(.*\))/\1/p' src/cli/verbs.def))
MANUALS := $(B)/share/lace.1 $(VERBS:%=$(B)/share/lace-%.1)
COMPLETIONS := $(patsubst %,$(B)/share/completion.%,bash zsh fish)

$(B)/share/lace.1: $(B)/lace
	@mkdir -p $(@D)
	$(call say,man)$(RUN) $< help --man >$@.new && mv $@.new $@

$(B)/share/lace-%.1: $(B)/lace
	@mkdir -p $(@D)
	$(call say,man)$(RUN) $< help --man $(subst -, ,$*) >$@.new && mv $@.new $@

$(B)/share/completion.%: $(B)/lace
	@mkdir -p $(@D)
	$(call say,shell)$(RUN) $< help --completion $* >$@.new && mv $@.new $@

# ---- Installing ----------------------------------------------------------------------------------

# One object of everything in which only the names of lace.h are visible, for programs of others.
$(B)/lib/liblace.a: $(B)/liblace.a
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,ar)$(LD) -r -o $(@D)/lace.o --whole-archive $< && \
	    $(OBJCOPY) -w -G 'lace_*' $(@D)/lace.o && $(AR) rcs $@ $(@D)/lace.o

# One word for the shell, whatever is in it.
quoted = '$(subst ','\'',$(1))'

# These two know where they will be.
$(B)/share/lace.pc: packaging/lace.pc.in FORCE
	@mkdir -p $(@D)
	@prefix=$(call quoted,$(PREFIX)); sed -e "s|@PREFIX@|$$prefix|" -e 's|@LIBDIR@|$(LIBDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|; s|@LIBS@|$(LIB_PKG)|' $< >$@

$(B)/share/lace.service: deploy/lace.service FORCE
	@mkdir -p $(@D)
	@prefix=$(call quoted,$(PREFIX)); sed -e "s|/usr/local/bin|$$prefix/bin|" $< >$@

# What users read; help and errors name it. What is for those who change lace stays in the source.
DOCUMENTS := README.md $(filter-out docs/STYLE.md docs/adding-%,$(wildcard docs/*.md docs/*.svg docs/*.png))

# Every file that is installed, once: mode, where it comes from, where it goes.
INSTALLED := \
    755:$(B)/lace:bin/lace \
    $(if $(MPI_PLUGIN),755:$(MPI_PLUGIN):lib/lace/lace_mpi.so) \
    644:$(B)/$(SONAME):$(LIBDIR)/$(SONAME) \
    644:$(B)/lib/liblace.a:$(LIBDIR)/liblace.a \
    644:$(B)/share/lace.pc:$(LIBDIR)/pkgconfig/lace.pc \
    644:include/lace.h:include/lace.h \
    644:$(B)/share/lace.service:$(UNITDIR)/lace.service \
    644:$(B)/share/completion.bash:share/bash-completion/completions/lace \
    644:$(B)/share/completion.zsh:$(ZSHDIR)/_lace \
    644:$(B)/share/completion.fish:share/fish/vendor_completions.d/lace.fish \
    $(foreach f,$(MANUALS),644:$(f):share/man/man1/$(notdir $(f))) \
    $(foreach f,$(DOCUMENTS),644:$(f):share/doc/lace/$(f)) \
    $(foreach f,$(wildcard examples/*.c examples/*.cc examples/*.hh examples/Makefile examples/README.md examples/*.py),644:$(f):share/doc/lace/$(f))

part     = $(word $(2),$(subst :, ,$(1)))
place    = $(call quoted,$(DESTDIR)$(PREFIX)/$(1))
define newline


endef

.PHONY: install uninstall
install: $(foreach f,$(INSTALLED),$(call part,$(f),2))
	$(foreach f,$(INSTALLED),install -D -m $(call part,$(f),1) $(call part,$(f),2) $(call place,$(call part,$(f),3))$(newline)	)
	ln -sf $(SONAME) $(call place,$(LIBDIR)/liblace.so)

# What install wrote, and the folders that only it had.
uninstall:
	$(foreach f,$(INSTALLED),rm -f $(call place,$(call part,$(f),3))$(newline)	)
	rm -f $(call place,$(LIBDIR)/liblace.so)
	-@rmdir $(call place,share/doc/lace/examples) $(call place,share/doc/lace/docs) \
	    $(call place,share/doc/lace) 2>/dev/null

# ---- The interface of the shared library ---------------------------------------------------------

# What a released program relies on. New functions are fine. Where a function or struct that was
# released has changed, raise ABI and the name in src/liblace.map; make abi-update writes the file again.
ABI_FILE := packaging/liblace.abi
.PHONY: abi abi-update
$(B)/abi/stubs.so: include/lace.h scripts/make-abi-stubs.pl
	@mkdir -p $(@D)
	@scripts/make-abi-stubs.pl $< >$(@:.so=.c)
	$(call say,abi)$(CC) -g -O0 -fPIC -shared -Iinclude -Wl,-soname,$(SONAME) -o $@ $(@:.so=.c)

shown_names = nm -D --defined-only $(1) | sed -n 's/.* \(lace_[a-z_0-9]*\).*/\1/p' | sort
abi: $(B)/abi/stubs.so $(B)/$(SONAME)
	@abidiff --no-added-syms $(ABI_FILE) $< || { echo "abi: lace.h differs from $(ABI_FILE);" \
	    "see packaging/packages.mk" >&2; exit 1; }
	@$(call shown_names,$<) >$(B)/abi/declared; $(call shown_names,$(B)/$(SONAME)) >$(B)/abi/shown
	@diff $(B)/abi/declared $(B)/abi/shown || { echo "abi: the library does not show what lace.h" \
	    "declares" >&2; exit 1; }
	@echo "abi: nothing that was released has changed"

abi-update: $(B)/abi/stubs.so
	abidw --no-corpus-path --no-comp-dir-path --no-show-locs --out-file $(ABI_FILE) $<

# ---- Python --------------------------------------------------------------------------------------

PYTHON     ?= $(firstword $(wildcard /usr/bin/python3) python3)
PYTHON_SRC := $(wildcard python/lace/*.py python/lace/py.typed)
.PHONY: python test-python wheel
$(B)/python/lace/_abi.py: include/lace.h scripts/make_python_abi.py
	@mkdir -p $(@D)
	$(call say,abi)$(PYTHON) scripts/make_python_abi.py $< $@

python: $(PYTHON_SRC) $(B)/python/lace/_abi.py
	@cp $(PYTHON_SRC) $(B)/python/lace/

# The shared library as the wheel carries it: what it needs is inside, and only the C library stays
# outside. Debian's archives can be part of a shared library but for two words that lie in the C library.
# jansson asks whether a file is `stdin`; nobody reads files by jansson here, so it asks for another
# word. The libraries of images name `stderr`; they get a copy of it.
BUNDLED := $(patsubst -l%,%,$(filter-out -lm -lpthread -ldl,$(shell pkg-config --static --libs-only-l $(LIB_PKG))))
$(B)/bundled/$(SONAME): $(B)/lib/liblace.a
	@mkdir -p $(@D)
	@for lib in $(BUNDLED); do \
	    $(OBJCOPY) --redefine-sym stdin=no_such_file --redefine-sym stderr=copied_stderr \
	        "$$($(CC) -print-file-name=lib$$lib.a)" $(@D)/lib$$lib.a || exit 1; done
	@printf '%s\n' '#include <stdio.h>' 'extern FILE *no_such_file, *copied_stderr;' \
	    'FILE *no_such_file __attribute__((visibility("hidden")));' \
	    'FILE *copied_stderr __attribute__((visibility("hidden")));' \
	    '__attribute__((constructor)) static void copy(void) { copied_stderr = stderr; }' | \
	    $(CC) -fPIC -x c -c -o $(@D)/standard_streams.o -
	$(call say,link)$(CC) $(LDFLAGS) $(SHARED_FLAGS) -o $@ -Wl,--whole-archive $< -Wl,--no-whole-archive \
	    $(@D)/standard_streams.o -Wl,--start-group $(BUNDLED:%=$(@D)/lib%.a) -Wl,--end-group \
	    -lm -lpthread -ldl
	@strip --strip-unneeded $@

wheel: python $(B)/bundled/$(SONAME)
	@$(PYTHON) packaging/make_wheel.py $(B)/python $(B)/bundled/$(SONAME) $(B)/wheel

# Debian's own Python: its packages have pytest and numpy.
test-python: python $(B)/$(SONAME) $(DATA)
	@LACE_LIBRARY=$(B)/$(SONAME) PYTHONPATH=$(B)/python PYTHONDONTWRITEBYTECODE=1 \
	    $(PYTHON) -m pytest -q -p no:cacheprovider python/tests

# ---- Source --------------------------------------------------------------------------------------

# The tree as an archive. What git does not know is left out; without git, what was built.
.PHONY: dist
dist:
	@mkdir -p $(B)
	@if git rev-parse --git-dir >/dev/null 2>&1; then \
	    git archive --prefix=lace-$(VERSION)/ -o $(B)/lace-$(VERSION).tar.gz HEAD; \
	else tar --exclude=./build --transform 's,^\.,lace-$(VERSION),' -czf $(B)/lace-$(VERSION).tar.gz .; fi
	@ls -l $(B)/lace-$(VERSION).tar.gz

# ---- Debian --------------------------------------------------------------------------------------

.PHONY: deb
deb: all python $(MANUALS) $(COMPLETIONS)
	@packaging/make_deb.sh $(VERSION) $(B)
