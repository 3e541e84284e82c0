/* The datatypes and operators that compare.c draws from. */
#ifndef TUTTI_TESTS_BINDINGS_MPI_CASES_H_
#define TUTTI_TESTS_BINDINGS_MPI_CASES_H_

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Datatypes ---- */
typedef struct {
  MPI_Datatype type;
  int derived;
  MPI_Aint extent;
  const char* name;
} Type;

typedef struct {
  double value;
  int index;
  short tag;
} Element;

static Type types[16];
static int type_count;

static void add_type(MPI_Datatype type, int derived, const char* name) {
  MPI_Aint lower = 0;
  if (derived) MPI_Type_commit(&type);
  types[type_count].type = type;
  types[type_count].derived = derived;
  types[type_count].name = name;
  MPI_Type_get_extent(type, &lower, &types[type_count].extent);
  ++type_count;
}

static MPI_Datatype element_type(void) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Datatype resized = MPI_DATATYPE_NULL;
  const int lengths[3] = {1, 1, 1};
  const MPI_Aint displs[3] = {(MPI_Aint)offsetof(Element, value), (MPI_Aint)offsetof(Element, index),
                              (MPI_Aint)offsetof(Element, tag)};
  const MPI_Datatype parts[3] = {MPI_DOUBLE, MPI_INT, MPI_SHORT};
  MPI_Type_create_struct(3, lengths, displs, parts, &type);
  MPI_Type_create_resized(type, 0, (MPI_Aint)sizeof(Element), &resized);
  MPI_Type_free(&type);
  return resized;
}

static void make_types(void) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  const int displs[3] = {5, 0, 2};
  const int lengths[3] = {2, 1, 2};
  add_type(MPI_BYTE, 0, "byte");
  add_type(MPI_DOUBLE, 0, "double");
  add_type(MPI_C_DOUBLE_COMPLEX, 0, "double complex");
  add_type(MPI_DOUBLE_INT, 0, "double and int");
  MPI_Type_contiguous(3, MPI_INT, &type);
  add_type(type, 1, "contiguous");
  MPI_Type_vector(3, 2, 4, MPI_SHORT, &type);
  add_type(type, 1, "vector");
  MPI_Type_indexed(3, lengths, displs, MPI_INT, &type);
  add_type(type, 1, "indexed out of order");
  add_type(element_type(), 1, "struct");
  MPI_Type_vector(2, 1, 2, MPI_FLOAT, &inner);
  MPI_Type_contiguous(2, inner, &type);
  MPI_Type_free(&inner);
  add_type(type, 1, "contiguous of vector");
  MPI_Type_dup(MPI_INT, &type);
  add_type(type, 1, "dup");
  MPI_Type_create_resized(MPI_INT, -4, 16, &type);
  add_type(type, 1, "resized with a negative lower bound");
}

/* ---- Operators ---- */
typedef struct {
  MPI_Op op;
  MPI_Datatype type;
  const char* name;
} Reduction;

static void add_ints(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int at = 0; at < *count; ++at) ((int*)inout)[at] += ((int*)in)[at];
}

/* 2 x 2 matrices modulo 2^32: associative, not commutative. */
typedef struct {
  uint32_t m[4];
} Matrix;

static void multiply(void* in, void* inout, int* count, MPI_Datatype* type) {
  const Matrix* left = (const Matrix*)in;
  Matrix* right = (Matrix*)inout;
  (void)type;
  for (int at = 0; at < *count; ++at) {
    Matrix product;
    for (int row = 0; row < 2; ++row) {
      for (int column = 0; column < 2; ++column) {
        product.m[2 * row + column] =
            left[at].m[2 * row] * right[at].m[column] + left[at].m[2 * row + 1] * right[at].m[2 + column];
      }
    }
    right[at] = product;
  }
}

/* For elements with holes, whose positions follow from the type's extent. The value is the last rank's, the rest the
 * first's. */
static void keep_right(void* in, void* inout, int* count, MPI_Datatype* type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  (void)in;
  PMPI_Type_get_extent(*type, &lower, &extent);
  for (int at = 0; at < *count; ++at) {
    Element* right = (Element*)((char*)inout + at * extent);
    const Element* left = (const Element*)((const char*)in + at * extent);
    right->index = left->index;
    right->tag = left->tag;
  }
}

static Reduction reductions[64];
static int reduction_count;
static MPI_Datatype matrix_type;
static MPI_Op own_ops[3];

static void add_reduction(MPI_Op op, MPI_Datatype type, const char* name) {
  reductions[reduction_count].op = op;
  reductions[reduction_count].type = type;
  reductions[reduction_count].name = name;
  ++reduction_count;
}

static void make_reductions(void) {
  const MPI_Op integer_ops[] = {MPI_SUM, MPI_MAX,  MPI_MIN,  MPI_PROD, MPI_LAND,
                                MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR,  MPI_BXOR};
  for (int at = 0; at < 10; ++at) {
    add_reduction(integer_ops[at], MPI_INT, "int");
    add_reduction(integer_ops[at], at % 2 == 0 ? MPI_UNSIGNED_SHORT : MPI_INT64_T, "other integers");
  }
  add_reduction(MPI_SUM, MPI_SIGNED_CHAR, "sum of chars");
  add_reduction(MPI_MAX, MPI_DOUBLE, "max of doubles");
  add_reduction(MPI_SUM, MPI_FLOAT, "sum of floats");
  add_reduction(MPI_SUM, MPI_LONG_DOUBLE, "sum of long doubles");
  add_reduction(MPI_SUM, MPI_C_DOUBLE_COMPLEX, "sum of complex numbers");
  add_reduction(MPI_LOR, MPI_C_BOOL, "lor");
  add_reduction(MPI_LXOR, MPI_C_BOOL, "lxor");
  add_reduction(MPI_BXOR, MPI_BYTE, "bxor of bytes");
  add_reduction(MPI_MAXLOC, MPI_DOUBLE_INT, "maxloc of double and int");
  add_reduction(MPI_MINLOC, MPI_2INT, "minloc of two ints");
  add_reduction(MPI_MAXLOC, MPI_SHORT_INT, "maxloc of short and int");
  add_reduction(MPI_MINLOC, MPI_LONG_DOUBLE_INT, "minloc of long double and int");
  MPI_Op_create(add_ints, 1, &own_ops[0]);
  MPI_Op_create(multiply, 0, &own_ops[1]);
  MPI_Op_create(keep_right, 0, &own_ops[2]);
  MPI_Type_contiguous(4, MPI_UINT32_T, &matrix_type);
  MPI_Type_commit(&matrix_type);
  add_reduction(own_ops[0], MPI_INT, "the program's on ints");
  add_reduction(own_ops[1], matrix_type, "matrices");
  add_reduction(own_ops[2], types[7].type, "the program's on structures with holes");
}

#endif /* TUTTI_TESTS_BINDINGS_MPI_CASES_H_ */
