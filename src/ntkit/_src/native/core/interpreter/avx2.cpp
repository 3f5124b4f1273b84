#define NTKIT_TARGET avx2
#include "execute.inc"
