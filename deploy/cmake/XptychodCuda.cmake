# The CUDA toolkit: compiler, runtime, cuFFT and, where it is found, NCCL.  Sets XPTYCHOD_HAVE_CUDA, or leaves it OFF and
# says why.  cuFFT and NCCL may come from the toolkit or from NVIDIA's Python wheels (XPTYCHOD_CUDA_WHEELS, the folder
# that holds nvidia/).
set(XPTYCHOD_HAVE_CUDA OFF)
set(XPTYCHOD_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING
    "GPU architectures; the last one also as PTX, which the driver compiles for newer ones")
set(XPTYCHOD_CUDA_WHEELS "" CACHE PATH "Folder with the nvidia/ packages of Python wheels, where the toolkit lacks libraries")
option(XPTYCHOD_NCCL "Exchange between distinct GPUs by NCCL where it is found" ON)

if(NOT CMAKE_CUDA_COMPILER)
    find_program(xptychod_nvcc nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(xptychod_nvcc)
        set(CMAKE_CUDA_COMPILER ${xptychod_nvcc})
    endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA: no nvcc was found (PATH, CUDA_HOME, /usr/local/cuda); the CUDA backend is left out")
    return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${XPTYCHOD_CUDA_ARCHITECTURES})
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# A library of the toolkit or of the wheels as an imported target.
function(xptychod_cuda_library target name header)
    file(GLOB wheels ${XPTYCHOD_CUDA_WHEELS}/nvidia/*)
    set(include_hints ${CUDAToolkit_INCLUDE_DIRS})
    set(library_hints ${CUDAToolkit_LIBRARY_DIR})
    foreach(wheel IN LISTS wheels)
        list(APPEND include_hints ${wheel}/include)
        list(APPEND library_hints ${wheel}/lib)
    endforeach()
    find_path(${target}_INCLUDE ${header} HINTS ${include_hints})
    find_library(${target}_LIBRARY NAMES ${name} ${ARGN} HINTS ${library_hints})
    if(${target}_INCLUDE AND ${target}_LIBRARY)
        add_library(XptychodCuda::${target} UNKNOWN IMPORTED GLOBAL)
        set_target_properties(XptychodCuda::${target} PROPERTIES IMPORTED_LOCATION ${${target}_LIBRARY}
                              INTERFACE_INCLUDE_DIRECTORIES ${${target}_INCLUDE})
    endif()
endfunction()
xptychod_cuda_library(cufft cufft cufft.h libcufft.so.12 libcufft.so.11)
xptychod_cuda_library(nccl nccl nccl.h libnccl.so.2)

if(NOT TARGET XptychodCuda::cufft)
    message(STATUS "CUDA: cuFFT was not found beside ${CMAKE_CUDA_COMPILER}; name the wheels with "
                   "-DXPTYCHOD_CUDA_WHEELS=DIR; the CUDA backend is left out")
    return()
endif()
if(XPTYCHOD_NCCL AND NOT TARGET XptychodCuda::nccl)
    message(STATUS "CUDA: NCCL was not found; distinct GPUs will exchange by the runtime's copies")
endif()
set(XPTYCHOD_HAVE_CUDA ON)
