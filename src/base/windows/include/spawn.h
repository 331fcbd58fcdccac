/* Programs that are started: this fails, see posix.h. */
#ifndef LACE_WINDOWS_SPAWN_H
#define LACE_WINDOWS_SPAWN_H

#include <sys/types.h>

typedef int posix_spawn_file_actions_t;
int posix_spawn_file_actions_init(posix_spawn_file_actions_t *a);
int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *a);
int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *a, int from, int to);
int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *a, int fd, const char *path,
                                     int flags, unsigned mode);
int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *a, int fd);
int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions,
                 const void *attributes, char *const *words, char *const *environment);

#endif
