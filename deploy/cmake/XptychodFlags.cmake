# xptychod_flags: what every target of this project is compiled with.
add_library(xptychod_flags INTERFACE)
# From the folder of xptycho or xptychod to that of the programs that they start.
file(RELATIVE_PATH libexec_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBEXECDIR}/xptycho)
target_compile_definitions(xptychod_flags INTERFACE _GNU_SOURCE XPTYCHOD_VERSION="${PROJECT_VERSION}"
    XPTYCHOD_LIBEXECDIR="${CMAKE_INSTALL_FULL_LIBEXECDIR}/xptycho" XPTYCHOD_LIBEXEC_FROM_BIN="${libexec_from_bin}")
target_compile_options(xptychod_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2
    -Wundef -Wpointer-arith -Wcast-qual -fno-common -fstack-protector-strong)
if(XPTYCHOD_WERROR)
    target_compile_options(xptychod_flags INTERFACE -Werror)
endif()
if(XPTYCHOD_SANITIZE)
    target_compile_options(xptychod_flags INTERFACE -fsanitize=${XPTYCHOD_SANITIZE}
                           -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(xptychod_flags INTERFACE -fsanitize=${XPTYCHOD_SANITIZE})
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(xptychod_flags INTERFACE _FORTIFY_SOURCE=2)
endif()

# xptychod_exact: what arithmetic is compiled with.
# Every operation is rounded as it is written, so that results are the same wherever they are computed.  gcc 12 leaves out
# the rounding to float of `(double)(float)x` where it turns neighbouring statements into vectors, from -O2 on.
set(xptychod_exact -ffp-contract=off)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    list(APPEND xptychod_exact -fno-tree-slp-vectorize)
endif()
