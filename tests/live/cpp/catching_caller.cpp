// A function that raises, in the form of a boxed kernel, and a caller of it that catches what it raises itself.

using Boxed = void (*)(void *, void *, unsigned long, void *);

extern "C" void raises(void *, void *, unsigned long, void *) { throw 1; }

extern "C" int calls(Boxed kernel) {
    void *stack[3] = {};
    try {
        kernel(nullptr, nullptr, 0, stack);
    } catch (int raised) {
        return raised;
    }
    return 0;
}
