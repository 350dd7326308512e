package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"
)

// go run driver.go URL QUEUE COUNT, before the block of docs/clients.md: fails at COUNT messages, and declares each.

type OutOfStock struct{ item string }

func (e OutOfStock) Error() string { return "item " + e.item + ": " + strings.Repeat("none left ", 100000) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	connection, err := amqp.Dial(os.Args[1])
	must(err)
	channel, err := connection.Channel()
	must(err)
	deaths, err := NewDeaths(connection)
	must(err)
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	deliveries, err := channel.Consume(os.Args[2], "", false, false, false, false, nil)
	must(err)
	for ; count > 0; count-- {
		m := <-deliveries
		why := deaths.Declare(context.Background(), m, os.Args[2], OutOfStock{string(m.Body)})
		if why == nil {
			must(m.Ack(false))
		} else {
			fmt.Println("refused", why)
			must(m.Nack(false, false))
		}
	}
	must(channel.Close())
	must(connection.Close())
}
