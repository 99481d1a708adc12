/* Prints the addresses of a name, as getaddrinfo gives them. */
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int count, char **words)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found, *one;
    char text[64];
    int error = count == 2 ? getaddrinfo(words[1], NULL, &hints, &found) : EAI_NONAME;

    if (error) {
        fprintf(stderr, "%s\n", gai_strerror(error));
        return 1;
    }
    for (one = found; one; one = one->ai_next)
        if (!getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            puts(text);
    return 0;
}
