# Attributes in `__slots__`, read and written by compiled code where they lie.
#
# To ask an object for an attribute costs a search through its classes each time. A slot is at the same place in every
# object of its class and of those that inherit from it, so it is looked up once (`slot_of`), when a module is imported.
#
# What an editor must keep true: nothing else is asked for a slot than objects of the class that it was looked up in.

from cpython.object cimport PyObject

cdef extern from "structmember.h":
    int T_OBJECT_EX
    ctypedef struct PyMemberDef:
        int type
        Py_ssize_t offset

cdef extern from "Python.h":
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member
    object PyLong_FromLongLong(long long number)
    void Py_INCREF(object value)
    void Py_XDECREF(PyObject* value)


cdef inline Py_ssize_t slot_of(type cls, str name) except -1:
    """Where objects of a class have an attribute."""
    from types import MemberDescriptorType

    descriptor = getattr(cls, name)
    if type(descriptor) is not MemberDescriptorType:
        raise TypeError(f"{name} is no slot of {cls.__name__}")
    cdef PyMemberDef* member = (<PyMemberDescrObject*> descriptor).d_member
    if member.type != T_OBJECT_EX:
        raise TypeError(f"{cls.__name__}.{name} is not kept as an object")
    return member.offset


cdef inline object get(object owner, Py_ssize_t slot):
    cdef PyObject* found = (<PyObject**> (<char*> <PyObject*> owner + slot))[0]
    if found is NULL:
        raise AttributeError(f"{owner!r} has an attribute that was never set")
    return <object> found


cdef inline long long get_int(object owner, Py_ssize_t slot) except? -1:
    return get(owner, slot)


cdef inline int put(object owner, Py_ssize_t slot, object value) except -1:
    cdef PyObject** place = <PyObject**> (<char*> <PyObject*> owner + slot)
    cdef PyObject* before = place[0]
    Py_INCREF(value)
    place[0] = <PyObject*> value
    Py_XDECREF(before)
    return 0


cdef inline int put_int(object owner, Py_ssize_t slot, long long number) except -1:
    return put(owner, slot, PyLong_FromLongLong(number))
