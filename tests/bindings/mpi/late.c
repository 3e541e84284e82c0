/* A program that loads its MPI library late and privately, like interpreters: `late MODULE`. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* module = argc > 1 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
  int (*check)(void) = NULL;
  if (module != NULL) *(void**)(&check) = dlsym(module, "check");
  if (check == NULL) {
    fprintf(stderr, "late: %s\n", dlerror());
    return 2;
  }
  return check();
}
