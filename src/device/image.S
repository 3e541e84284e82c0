// The code for devices, as bytes of the library: what nvcc has linked, or, without nvcc, a text.
    .section .rodata
    .balign 64
    .hidden tutti_device_image
    .globl tutti_device_image
    .type tutti_device_image, %object
tutti_device_image:
#ifdef IMAGE
    .incbin IMAGE
#else
    .asciz "built without nvcc"
#endif
    .size tutti_device_image, . - tutti_device_image
    .section .note.GNU-stack, "", %progbits
