/* Libraries that are opened by a running program. */
#ifndef LACE_WINDOWS_DLFCN_H
#define LACE_WINDOWS_DLFCN_H

enum { RTLD_LAZY = 1, RTLD_NOW = 2, RTLD_LOCAL = 0, RTLD_GLOBAL = 256 };

void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *name);
int dlclose(void *library);
char *dlerror(void);

#endif
