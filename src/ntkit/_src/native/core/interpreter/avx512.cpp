#define NTKIT_TARGET avx512
#include "execute.inc"
