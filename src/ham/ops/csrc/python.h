// What is used of Python's stable interface, declared here: its own headers are often not installed, and a library
// that was built beforehand is for every version.
#pragma once

#include <cstdint>

struct _object;
using PyObject = _object;

extern "C" {
using PyFastFunction = PyObject* (*)(PyObject* self, PyObject* const* arguments, intptr_t count);
struct PyMethodDef {
  const char* name;
  PyFastFunction function;
  int flags;
  const char* doc;
};
constexpr int METH_FASTCALL = 0x0080;

void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyObject_Type(PyObject*);
PyObject* PyObject_GetAttr(PyObject*, PyObject* name);
int PyObject_SetAttr(PyObject*, PyObject* name, PyObject* value);
int PyObject_GenericSetAttr(PyObject*, PyObject* name, PyObject* value);
PyObject* PyType_GenericNew(PyObject* type, PyObject* arguments, PyObject* named);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject* self, PyObject* module);
PyObject* PyBool_FromLong(long);
PyObject* PyUnicode_InternFromString(const char*);
PyObject* PyTuple_New(intptr_t size);
int PyTuple_SetItem(PyObject*, intptr_t, PyObject* taken);
PyObject* PyTuple_GetItem(PyObject*, intptr_t);
intptr_t PyTuple_Size(PyObject*);
intptr_t PyDict_Size(PyObject*);
int PyDict_Next(PyObject*, intptr_t* position, PyObject** key, PyObject** value);
long long PyLong_AsLongLong(PyObject*);
void* PyLong_AsVoidPtr(PyObject*);
double PyFloat_AsDouble(PyObject*);
PyObject* PyErr_Occurred();
void PyErr_Clear();
void PyErr_SetString(PyObject* type, const char*);
extern PyObject* PyExc_RuntimeError;
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
}

namespace at {
class TensorBase;
}
PyObject* THPVariable_Wrap(const at::TensorBase&);  // PyTorch's
